package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// ringChildEnv tells a child what it is to be, and the socket: "role|socket".
const ringChildEnv = "PURECUDA_TEST_RING"

// ringChild is another process at the other end of a session.
type ringChild struct {
	cmd     *exec.Cmd
	session *Session
	said    strings.Builder // what it prints
}

func startRingChild(t testing.TB, role string) *ringChild {
	t.Helper()
	dir, err := os.MkdirTemp("", "ring")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "socket")
	l, err := Listen(socket, nil)
	require.NoError(t, err)
	defer l.Close()
	c := &ringChild{cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRingChild$", "-test.timeout=9m")}
	c.cmd.Env = append(os.Environ(), ringChildEnv+"="+role+"|"+socket)
	c.cmd.Stdout, c.cmd.Stderr = &c.said, &c.said
	require.NoError(t, c.cmd.Start())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if c.session, err = l.Accept(ctx); err != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		t.Fatalf("%v; the child says: %s", err, &c.said)
	}
	return c
}

// TestRingChild is what a child of the tests on hardware runs.
func TestRingChild(t *testing.T) {
	role, socket, ok := strings.Cut(os.Getenv(ringChildEnv), "|")
	if !ok {
		t.Skip("runs as a child of other tests")
	}
	drv := testgpu.RealDriver(t)
	dev, err := drv.OpenDevice(0)
	require.NoError(t, err)
	ctx := within(t, 5*time.Minute)
	s, err := Dial(ctx, socket, nil)
	require.NoError(t, err)
	if role == "real" {
		err = realVolume.consume(ctx, drv, dev, s)
	} else {
		err = victim(ctx, role, drv, dev, s, func(io.Closer) {})
	}
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Zero(t, drv.Stats().Forgotten)
}

// volume is how much goes through the rings.
type volume struct {
	slots                    []int
	checked, checkedLength   int // batches, and elements of each
	measured, measuredLength int
}

var realVolume = volume{[]int{8, 64}, 10_000, 64 << 10 / 4, 5000, 1 << 20 / 4}

// wordsOf returns what batches of a length are parts of, see [source].
func wordsOf(length int) []uint32 {
	words := make([]uint32, length+shifts)
	x := uint32(1)
	for i := range words {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		words[i] = x
	}
	return words
}

// TestRingReal sends many batches to another process, which checks every byte, and
// then measures.
func TestRingReal(t *testing.T) {
	drv := testgpu.RealDriver(t)
	dev, err := drv.OpenDevice(0)
	require.NoError(t, err)
	before := drv.Stats()
	child := startRingChild(t, "real")
	ctx := within(t, 5*time.Minute)
	err = realVolume.produce(ctx, t, dev, child.session)
	closeErr := child.session.Close()
	if err != nil {
		_ = child.cmd.Process.Kill()
	}
	require.NoError(t, errors.Join(child.cmd.Wait(), err), "the child says: %s", &child.said)
	require.NoError(t, closeErr)
	testgpu.WaitUntil(t, func() bool { return drv.Stats() == before })
}

// The same between simulated processes, so that the test itself is tested.
func TestRingRealSimulated(t *testing.T) {
	d := newDuo(t)
	v := volume{[]int{2, 3}, 100, 64, 20, 128}
	consumed := testgpu.Go(func() error { return v.consume(context.Background(), d.b.drv, d.b.dev, d.b.Session) })
	require.NoError(t, v.produce(within(t, 10*time.Second), t, d.a.dev, d.a.Session))
	require.NoError(t, testgpu.Receive(t, consumed))
	freed(t, d)
}

func (v volume) produce(ctx context.Context, t testing.TB, dev *cuda.Device, session *Session) (err error) {
	s, err := dev.NewStream(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	from, err := cuda.Alloc[uint32](dev, v.measuredLength+shifts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := cuda.Alloc[uint32](dev, v.measuredLength)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if err := cuda.CopyFromSlice(ctx, s, from, wordsOf(v.measuredLength)); err != nil {
		return err
	}
	report := func(what string, d time.Duration) {
		bytes := float64(v.measured) * float64(v.measuredLength) * 4
		t.Logf("%d bytes %-36s %6.1f GB/s, %6.2f µs each", 4*v.measuredLength, what, bytes/d.Seconds()/1e9, d.Seconds()*1e6/float64(v.measured))
	}
	for _, slots := range v.slots {
		began := time.Now()
		if err := sendAll(ctx, dev, session, s, from, fmt.Sprintf("checked %d", slots), slots, v.checkedLength, v.checked); err != nil {
			return err
		}
		t.Logf("%d slots: %d batches of %d bytes, every one of them checked, in %v", slots, v.checked, 4*v.checkedLength, time.Since(began).Round(time.Millisecond))
		for i := range 2 { // the first warms up
			began := time.Now()
			if err := sendAll(ctx, dev, session, s, from, fmt.Sprintf("measured %d, %d", slots, i), slots, v.measuredLength, v.measured); err != nil {
				return err
			}
			report(fmt.Sprintf("in and out of a ring of %d slots:", slots), time.Since(began))
		}
		began = time.Now()
		for n := range uint64(v.measured) {
			part, err := from.Range(shift(n), shift(n)+v.measuredLength)
			if err != nil {
				return err
			}
			if err := cuda.Copy(s, to, part); err != nil {
				return err
			}
		}
		if err := s.Synchronize(); err != nil {
			return err
		}
		report("copied within the device:", time.Since(began))
	}
	return nil
}

// sendAll makes a ring, sends batches and waits until they are used.
func sendAll(ctx context.Context, dev *cuda.Device, session *Session, s *cuda.Stream, from *cuda.Buffer[uint32], name string, slots, length, batches int) (err error) {
	p, err := NewProducer[uint32](ctx, session, dev, name, slots, length)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	for range batches {
		slot, err := p.Next(ctx, s)
		if err != nil {
			return err
		}
		at := shift(slot.Number)
		part, err := from.Range(at, at+length)
		if err != nil {
			return err
		}
		if err := cuda.Copy(s, slot.Buffer, part); err != nil {
			return err
		}
		if err := slot.Send(s); err != nil {
			return err
		}
	}
	return p.Flush(ctx)
}

// consume is the other end of produce.
func (v volume) consume(ctx context.Context, drv *cuda.Driver, dev *cuda.Device, session *Session) (err error) {
	s, err := dev.NewStream(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	words := wordsOf(v.measuredLength)
	for _, slots := range v.slots {
		n, err := takeAll(ctx, drv, session, s, fmt.Sprintf("checked %d", slots), words)
		if err != nil {
			return err
		}
		if n != v.checked {
			return fmt.Errorf("%d batches came, and not %d", n, v.checked)
		}
		for i := range 2 {
			if _, err := takeAll(ctx, drv, session, s, fmt.Sprintf("measured %d, %d", slots, i), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeAll takes the batches of a ring until its end, and compares them if words are
// given. It returns how many were good.
func takeAll(ctx context.Context, drv *cuda.Driver, session *Session, s *cuda.Stream, name string, words []uint32) (good int, err error) {
	c, err := NewConsumer[uint32](ctx, session, drv, name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	x, err := newCopier(c, s, words)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	for {
		err := x.take(ctx)
		for err == nil && len(x.pending) > c.Slots()/2 {
			err = x.check(ctx)
		}
		for errors.Is(err, io.EOF) && len(x.pending) > 0 {
			err = x.check(ctx)
			if err == nil {
				err = io.EOF
			}
		}
		if errors.Is(err, io.EOF) {
			return x.good, nil
		}
		if err != nil {
			return x.good, err
		}
	}
}
