package ipc

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/internal/testgpu"
)

// sayWithFiles writes b and n files.
func (w *wire) sayWithFiles(b []byte, n int) error {
	f, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer f.Close()
	var fds []int
	for range n {
		fds = append(fds, int(f.Fd()))
	}
	_, _, err = w.c.WriteMsgUnix(b, syscall.UnixRights(fds...), nil)
	return err
}

// The second file is one too many, even if the message that they come with never ends.
func TestFilesWithPartsOfAMessage(t *testing.T) {
	for _, each := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(each), func(t *testing.T) {
			leavesNothing(t)
			s, w := stranger(t, &mortal{})
			require.NoError(t, w.sayWithFiles([]byte("\x60\xea\x00\x00"), 0)) // 60000 bytes are to come
			go func() {
				for w.sayWithFiles([]byte("x"), each) == nil {
					time.Sleep(time.Millisecond)
				}
			}()
			m := w.hears(t)
			require.Equal(t, typeError, m.Type)
			require.Contains(t, m.Text, fmt.Sprintf("%d files with a message", max(each, 2)))
			testgpu.Receive(t, s.Done())
			require.ErrorIs(t, s.Err(), ErrProtocol)
		})
	}
}

func fileFrame(t *testing.T, channel string) []byte {
	frame, err := encode(message{Type: typeMessage, Name: channel, File: true})
	require.NoError(t, err)
	return frame
}

// Files that nobody takes are not hoarded.
func TestUnclaimedFiles(t *testing.T) {
	leavesNothing(t)
	s, w := stranger(t, &mortal{})
	for i := range fileLimit {
		require.NoError(t, w.sayWithFiles(fileFrame(t, fmt.Sprint("channel ", i%8)), 1))
	}
	testgpu.WaitUntil(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.channels.files() == fileLimit })
	require.NoError(t, s.Err())
	w.say(t, message{Type: typeMessage, Name: "channel 0"})
	require.NoError(t, w.sayWithFiles(fileFrame(t, "channel 0"), 1))
	m := w.hears(t)
	require.Equal(t, typeError, m.Type)
	require.Contains(t, m.Text, "more than 64 files that nobody receives")
	testgpu.Receive(t, s.Done())
	require.ErrorIs(t, s.Err(), ErrProtocol)
}

// A receiver that is slow with its files makes the peer wait.
func TestSlowReceiverOfFiles(t *testing.T) {
	const all = 3 * fileLimit
	leavesNothing(t)
	s, w := stranger(t, &mortal{})
	release, came := make(chan struct{}), make(chan bool, all)
	_, err := s.receiver("a", func(_ []byte, f *os.File) {
		<-release
		came <- f.Close() == nil
	})
	require.NoError(t, err)
	frame := fileFrame(t, "a")
	sent := testgpu.Go(func() error {
		for range all {
			if err := w.sayWithFiles(frame, 1); err != nil {
				return err
			}
		}
		return nil
	})
	waiting := func() int { s.mu.Lock(); defer s.mu.Unlock(); return s.channels.files() }
	testgpu.WaitUntil(t, func() bool { return waiting() >= fileLimit })
	time.Sleep(testgpu.Soon)
	require.Equal(t, fileLimit, waiting())
	close(release)
	require.NoError(t, testgpu.Receive(t, sent))
	for range all {
		require.True(t, testgpu.Receive(t, came))
	}
	require.NoError(t, s.Err())
}
