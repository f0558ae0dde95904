package main

import (
	"errors"
	"fmt"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
)

// kernel loads the kernel.
func (p *pipeline) kernel(d *cuda.Device) (err error) {
	if p.module, err = d.LoadModule([]byte(kernels.PTX)); err != nil {
		return err
	}
	p.closers = append(p.closers, p.module.Close)
	if p.matmul, err = p.module.Kernel("purecuda_matmul"); err != nil {
		return err
	}
	// Drivers bring a kernel to the device when it is first launched, which would
	// count as the first product's time. This multiplies nothing.
	var nothing driver.DevicePtr
	return p.matmul.Launch(p.work, cuda.Grid1D(1, matmulThreads), nothing, nothing, nothing, uint32(0), uint32(0), uint32(0))
}

// deviceMemory allocates the device buffers, and poisons them.
func (p *pipeline) deviceMemory() (err error) {
	for k := range slots {
		if p.a[k], err = poisoned(p, p.in, int(p.size), byte(poison)); err != nil {
			return err
		}
		if p.stamp[k], err = poisoned(p, p.in, stampWords, uint32(poison)); err != nil {
			return err
		}
		if err := p.pool(p.in, &p.matrix[k]); err != nil {
			return err
		}
	}
	if err := p.pool(p.work, &p.product); err != nil {
		return err
	}
	if p.weights, err = poisoned(p, p.work, p.n*p.n, notANumber); err != nil {
		return err
	}
	if p.b, err = poisoned(p, p.work, int(p.size), byte(poison)); err != nil || p.peer == nil {
		return err
	}
	if p.c, err = poisoned(p, p.peer, int(p.size), byte(poison)); err != nil {
		return err
	}
	if p.d, err = poisoned(p, p.peer, int(p.size), byte(poison)); err != nil {
		return err
	}
	p.back, err = poisoned(p, p.work, int(p.size), byte(poison))
	return err
}

// poisoned allocates a buffer on the device of s and enqueues its poisoning.
func poisoned[T cuda.Element](p *pipeline, s *cuda.Stream, n int, v T) (*cuda.Buffer[T], error) {
	b, err := cuda.Alloc[T](s.Device(), n)
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, b.Close)
	return b, cuda.Fill(s, b, v)
}

// pool sets b to a matrix from the pool, poisoned, whose home is s, and closes
// what b is in the end.
func (p *pipeline) pool(s *cuda.Stream, b **cuda.Buffer[float32]) error {
	p.closers = append(p.closers, func() error { return (*b).Close() })
	if err := p.renew(s, b); err != nil {
		return err
	}
	return cuda.Fill(s, *b, notANumber)
}

// renew closes the matrix b, without waiting, and takes another one. s, its home,
// has waited for the other streams' work on it, so that it is given back at once, in
// the order of s. Otherwise it would be when that work is done.
func (p *pipeline) renew(s *cuda.Stream, b **cuda.Buffer[float32]) error {
	if err := (*b).Close(); err != nil { // nil at first, which is harmless
		return err
	}
	next, err := cuda.AllocAsync[float32](s, p.n*p.n)
	if err == nil {
		*b = next
	}
	return err
}

// hostMemory allocates the batches' memory, writes the sources, poisons the
// results, and sends the weights to the device.
func (p *pipeline) hostMemory(d *cuda.Device) error {
	n := p.n
	w, err := pin[float32](p, d, n*n)
	if err != nil {
		return err
	}
	copy(w.Slice(), matrix(weights, n))
	if err := cuda.Copy(p.work, p.weights, w); err != nil {
		return fmt.Errorf("the weights: %w", err)
	}
	for i := range p.batches {
		source, err := pin[byte](p, d, int(p.size))
		if err != nil {
			return err
		}
		result, err := pin[byte](p, d, int(p.size))
		if err != nil {
			return err
		}
		stamp, err := pin[uint32](p, d, stampWords)
		if err != nil {
			return err
		}
		factor, err := pin[float32](p, d, n*n)
		if err != nil {
			return err
		}
		product, err := pin[float32](p, d, n*n)
		if err != nil {
			return err
		}
		write(source.Slice(), i)
		copy(factor.Slice(), matrix(i, n))
		p.source, p.result, p.stamps = append(p.source, source), append(p.result, result), append(p.stamps, stamp)
		p.matrices, p.products = append(p.matrices, factor), append(p.products, product)
	}
	p.poisonResults()
	return nil
}

func pin[T cuda.Element](p *pipeline, d *cuda.Device, n int) (*cuda.HostBuffer[T], error) {
	b, err := cuda.AllocHost[T](d, n, nil)
	if err == nil {
		p.closers = append(p.closers, b.Close)
	}
	return b, err
}

// poisonResults forgets what has come back.
func (p *pipeline) poisonResults() {
	for i := range p.batches {
		set(p.result[i].Slice(), poison)
		set(p.stamps[i].Slice(), poison)
		set(p.products[i].Slice(), notANumber)
	}
}

func set[T any](s []T, v T) {
	for i := range s {
		s[i] = v
	}
}

// advise adds to an error for want of memory what to do.
func advise(err error, what string) error {
	if errors.Is(err, driver.ErrorOutOfMemory) {
		return fmt.Errorf("%w; %s", err, what)
	}
	return err
}
