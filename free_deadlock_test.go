package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Closing memory makes no stream wait. So a program in which streams wait for each other by
// values comes to its end, whatever it closes in between.
func TestClosingMemoryBesideWaitValue(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, home, user *cuda.Stream) (drop func()){
		"closed": func(t *testing.T, home, user *cuda.Stream) func() {
			b := used(t, home, user)
			return func() { require.NoError(t, b.Close()) }
		},
		"pinned": func(t *testing.T, home, user *cuda.Stream) func() {
			host, err := cuda.AllocHost[uint32](home.Device(), 4, nil)
			require.NoError(t, err)
			require.NoError(t, cuda.Copy(user, testgpu.Alloc[uint32](t, home.Device(), 4), host))
			return func() { require.NoError(t, host.Close()) }
		},
	} {
		testgpu.Rule(t, "29 a stream waits for a value that the home will write: "+name, 1, func(t *testing.T, b *testgpu.Backend) {
			b, calls := testgpu.Counted(t, b, nil)
			home, user := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
			word := hostWord(t, b.Device(), 1, 0)
			storedAtEnd(t, b.Device(), word, 1)
			drop := use(t, home, user)
			require.NoError(t, user.WaitValue(word, 1)) // later, and about something else
			waits := calls.Count("StreamWaitEvent")
			drop()
			require.Equal(t, waits, calls.Count("StreamWaitEvent"))
			require.NoError(t, home.WriteValue(word, 1))
			testgpu.Returns(t, func() { require.NoError(t, user.Synchronize()) })
			if name != "pinned" {
				testgpu.WaitUntil(t, func() bool { return calls.Count("MemFreeAsync") == 1 })
			}
		})
	}
}

// Nor if the garbage collector closes it between two calls.
func TestCollectingMemoryBesideWaitValue(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	home, user := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	word := hostWord(t, d, 1, 0)
	storedAtEnd(t, d, word, 1)
	used(t, home, user)
	require.NoError(t, user.WaitValue(word, 1))
	testgpu.CollectUntil(t, func() bool { return d.Driver().Stats().Forgotten == 1 })
	require.Equal(t, 1, d.Driver().Stats().Buffers, "it is used")
	require.NoError(t, home.WriteValue(word, 1))
	testgpu.Returns(t, func() { require.NoError(t, user.Synchronize()) })
	testgpu.WaitUntil(t, func() bool { return d.Driver().Stats().Buffers == 0 })
}

// used returns memory of home that user uses.
func used(t *testing.T, home, user *cuda.Stream) *cuda.Buffer[uint32] {
	b, err := cuda.AllocAsync[uint32](home, 4)
	require.NoError(t, err)
	require.NoError(t, user.WaitStream(home))
	require.NoError(t, cuda.Fill(user, b, 1))
	return b
}
