package cudatest

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// fills enqueues n memsets on s, in the background. taken says how many were taken.
func (b *bed) fills(s driver.Stream, p driver.DevicePtr, n int) (taken *int, ended <-chan driver.Result) {
	taken, end := new(int), make(chan driver.Result, 1)
	go func() {
		for range n {
			if r := b.MemsetD32Async(p, 1, 4, s); r != driver.Success {
				end <- r
				return
			}
			*taken++
		}
		end <- driver.Success
	}()
	return taken, end
}

func TestQueueDepth(t *testing.T) {
	for name, c := range map[string]struct {
		depth, taken int
		end          driver.Result
	}{
		"released":    {4, 4, driver.Success},
		"no limit":    {-1, 6, driver.Success},
		"device lost": {4, 4, driver.ErrorLaunchFailed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				b.gpu.conf.QueueDepth = Config{QueueDepth: c.depth}.withDefaults().QueueDepth
				s, far := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
				p, q := b.mem(0, 64), b.mem(0, 64)
				lost := b.stream(0, driver.StreamNonBlocking)
				release := b.gpu.Hold(Handle(s))
				defer release()
				taken, ended := b.fills(s, p, 6)
				synctest.Wait()
				require.Equal(t, c.taken, *taken)
				b.ok(b.MemsetD32Async(q, 1, 4, far))
				b.ok(b.StreamSynchronize(far))
				made := make(chan driver.Result, 1)
				go func() {
					b.on(0, func() {
						h, r := b.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
						if r == driver.Success {
							b.StreamDestroy(h)
						}
						made <- r
					})
				}()
				asked := make(chan driver.Result, 1)
				go func() { asked <- b.StreamQuery(s) }()
				synctest.Wait()
				require.Equal(t, c.depth < 0, len(made) == 1, "a stream was made")
				require.Equal(t, c.depth < 0, len(asked) == 1, "the stream was asked")
				if c.end == driver.Success {
					release()
				} else {
					b.gpu.Fault(Handle(lost), c.end)
				}
				require.Equal(t, c.end, <-ended)
				require.Equal(t, c.end, <-made)
				if c.end != driver.Success {
					require.Equal(t, c.end, <-asked)
				}
			})
		})
	}
}
