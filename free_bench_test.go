package cuda_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// BenchmarkRealFreeBesideWork shows what freeing memory costs while the device
// works: how long Close takes, and a Record on another stream meanwhile. A kernel
// of 60 ms runs on one stream. The times per operation mean nothing.
func BenchmarkRealFreeBesideWork(b *testing.B) {
	d, err := testgpu.RealDriver(b).OpenDevice(0)
	require.NoError(b, err)
	busy, other := testgpu.NewStream(b, d, nil), testgpu.NewStream(b, d, nil)
	spin := testgpu.Kernel(b, testgpu.Kernels(b, d), "purecuda_spin")
	e := testgpu.NewEvent(b, nil)
	require.NoError(b, e.Record(other))
	for name, alloc := range map[string]func() func() error{
		"AllocAsync": func() func() error {
			return allocFor(b, func() (*cuda.Buffer[byte], error) { return cuda.AllocAsync[byte](other, 4096) })
		},
		"Alloc": func() func() error {
			return allocFor(b, func() (*cuda.Buffer[byte], error) { return cuda.Alloc[byte](d, 4096) })
		},
		"AllocHost": func() func() error {
			return allocFor(b, func() (*cuda.HostBuffer[byte], error) { return cuda.AllocHost[byte](d, 4096, nil) })
		},
	} {
		b.Run(name, func(b *testing.B) {
			var closing, recording time.Duration
			for b.Loop() {
				free := alloc()
				require.NoError(b, d.Synchronize())
				require.NoError(b, spin.Launch(busy, cuda.Grid1D(1, 1), uint64(60*time.Millisecond)))
				closed := make(chan time.Duration)
				go func() {
					begin := time.Now()
					if err := free(); err != nil {
						b.Error(err)
					}
					closed <- time.Since(begin)
				}()
				time.Sleep(5 * time.Millisecond) // Close is in the driver
				begin := time.Now()
				require.NoError(b, e.Record(other))
				recording += time.Since(begin)
				closing += <-closed
			}
			b.ReportMetric(closing.Seconds()*1e3/float64(b.N), "ms/close")
			b.ReportMetric(recording.Seconds()*1e3/float64(b.N), "ms/record")
		})
	}
}

func allocFor[B interface{ Close() error }](b *testing.B, alloc func() (B, error)) func() error {
	buf, err := alloc()
	require.NoError(b, err)
	return buf.Close
}
