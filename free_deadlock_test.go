package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
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
			require.NoError(t, cuda.Copy(user, alloc[uint32](t, home.Device(), 4), host))
			return func() { require.NoError(t, host.Close()) }
		},
	} {
		rule(t, "29 a stream waits for a value that the home will write: "+name, 1, func(t *testing.T, b *backend) {
			b, calls := counted(t, b, nil)
			home, user := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
			word := hostWord(t, b.dev(), 1, 0)
			storedAtEnd(t, b.dev(), word, 1)
			drop := use(t, home, user)
			require.NoError(t, user.WaitValue(word, 1)) // later, and about something else
			waits := calls.count("StreamWaitEvent")
			drop()
			require.Equal(t, waits, calls.count("StreamWaitEvent"))
			require.NoError(t, home.WriteValue(word, 1))
			returns(t, func() { require.NoError(t, user.Synchronize()) })
			if name != "pinned" {
				becomes(t, func() bool { return calls.count("MemFreeAsync") == 1 })
			}
		})
	}
}

// Nor if the garbage collector closes it between two calls.
func TestCollectingMemoryBesideWaitValue(t *testing.T) {
	_, d := simulatedDevice(t, nil)
	home, user := newStream(t, d, nil), newStream(t, d, nil)
	word := hostWord(t, d, 1, 0)
	storedAtEnd(t, d, word, 1)
	used(t, home, user)
	require.NoError(t, user.WaitValue(word, 1))
	eventually(t, func() bool { return d.Driver().Stats().Forgotten == 1 })
	require.Equal(t, 1, d.Driver().Stats().Buffers, "it is used")
	require.NoError(t, home.WriteValue(word, 1))
	returns(t, func() { require.NoError(t, user.Synchronize()) })
	becomes(t, func() bool { return d.Driver().Stats().Buffers == 0 })
}

// used returns memory of home that user uses.
func used(t *testing.T, home, user *cuda.Stream) *cuda.Buffer[uint32] {
	b, err := cuda.AllocAsync[uint32](home, 4)
	require.NoError(t, err)
	require.NoError(t, user.WaitStream(home))
	require.NoError(t, cuda.Fill(user, b, 1))
	return b
}
