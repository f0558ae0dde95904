package ipc

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/proc"
	"github.com/purecuda/cuda/internal/testgpu"
)

// stranger is a peer that speaks by hand. The session is the other end of its
// connection.
func stranger(t testing.TB, m *mortal) (*Session, *wire) {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	conn := func(fd int) *wire {
		f := os.NewFile(uintptr(fd), "pair")
		defer f.Close()
		c, err := net.FileConn(f)
		require.NoError(t, err)
		return newLink(c.(*net.UnixConn)).(*wire)
	}
	self, err := proc.Find(0)
	require.NoError(t, err)
	w := conn(pair[0])
	s, err := newSession(conn(pair[1]), Credentials{PID: os.Getpid()}, self, self, m.processes())
	require.NoError(t, err)
	t.Cleanup(func() {
		w.close()
		_ = s.Close()
		m.gone()
	})
	return s, w
}

func (w *wire) say(t testing.TB, m message) {
	t.Helper()
	frame, err := encode(m)
	require.NoError(t, err)
	require.NoError(t, w.write(frame, nil))
}

// hears returns the next message to the stranger.
func (w *wire) hears(t testing.TB) message {
	t.Helper()
	w.readBy(time.Now().Add(10 * time.Second))
	body, file, err := w.read()
	require.NoError(t, err)
	require.Nil(t, file)
	m, err := decode(body)
	require.NoError(t, err)
	return m
}

func token(t testing.TB) *Token {
	return &Token{Kind: MemoryToken, Size: 16, Process: driver.Process{PID: 1, Boot: driver.Boot{1}}}
}

func TestProtocolErrors(t *testing.T) {
	self, err := proc.Find(0)
	require.NoError(t, err)
	third := *token(t)
	third.Process = self
	third.Process.PID++
	offer := func(id uint64, name string) message {
		return message{Type: typeOffer, ID: id, Name: name, Token: token(t)}
	}
	var many []message
	for i := range offerLimit + 1 {
		many = append(many, offer(uint64(i), fmt.Sprint("offer ", i)))
	}
	leave, bye := message{Type: typeLeave}, message{Type: typeBye}
	for name, test := range map[string]struct {
		says []message
		text string
	}{
		"second hello":       {[]message{{Type: typeHello, Version: 1, Process: &identity{}}}, "in the middle"},
		"name twice":         {[]message{offer(1, "x"), offer(2, "x")}, "two offers"},
		"number twice":       {[]message{offer(1, "x"), offer(1, "y")}, "two offers"},
		"too many":           {many, "more than 1024 offers"},
		"third process":      {[]message{{Type: typeOffer, ID: 1, Name: "x", Token: &third}}, fmt.Sprintf("process %d's", third.Process.PID)},
		"withdraws nothing":  {[]message{{Type: typeWithdraw, ID: 1}}, "offer 1, which there is not"},
		"withdraws twice":    {[]message{offer(1, "x"), {Type: typeWithdraw, ID: 1}, {Type: typeWithdraw, ID: 1}}, "offer 1, which there is not"},
		"releases nothing":   {[]message{{Type: typeReleased, ID: 1}}, "not withdrawn"},
		"bye at once":        {[]message{bye}, "before anybody has left"},
		"leaves twice":       {[]message{leave, leave}, "second goodbye"},
		"offers after leave": {[]message{leave, offer(1, "x")}, "after its goodbye"},
		"talks after leave":  {[]message{leave, {Type: typeMessage, Name: "x"}}, "after its goodbye"},
		"missing file":       {[]message{{Type: typeMessage, Name: "x", File: true}}, "a message that announces a file, and came without one"},
		"hoards":             {chatter(2*pendingLimit + 1), "nobody receives"},
	} {
		t.Run(name, func(t *testing.T) {
			leavesNothing(t)
			s, w := stranger(t, &mortal{})
			go func() {
				for _, m := range test.says {
					frame, _ := encode(m)
					if w.write(frame, nil) != nil {
						return
					}
				}
			}()
			var m message
			for m.Type != typeError {
				m = w.hears(t)
			}
			require.Equal(t, codeProtocol, m.Code)
			require.Contains(t, m.Text, test.text)
			_, _, err := w.read()
			require.True(t, err == io.EOF || errors.Is(err, syscall.ECONNRESET), "%v", err)
			testgpu.Receive(t, s.Done())
			if test.says[0].Type != typeLeave {
				require.ErrorIs(t, s.Err(), ErrProtocol)
				require.ErrorIs(t, s.Err(), cuda.ErrPeerGone)
				require.ErrorContains(t, s.Err(), test.text)
			}
		})
	}
}

func chatter(n int) (all []message) {
	for i := range n {
		all = append(all, message{Type: typeMessage, Name: fmt.Sprint("channel ", i%100)})
	}
	return all
}

func TestFilesThatMustNotBe(t *testing.T) {
	for name, test := range map[string]struct {
		m    message
		n    int
		text string
	}{
		"with an offer":     {message{Type: typeOffer, ID: 1, Name: "x", Token: token(t)}, 1, "an offer that came with a file that it does not announce"},
		"with a goodbye":    {message{Type: typeLeave, File: true}, 1, "a file with a leave"},
		"two":               {message{Type: typeMessage, Name: "x", File: true}, 2, "2 files"},
		"undeclared":        {message{Type: typeMessage, Name: "x"}, 1, "a message that came with a file that it does not announce"},
		"more than fits in": {message{Type: typeMessage, Name: "x", File: true}, 50, "files"},
	} {
		t.Run(name, func(t *testing.T) {
			leavesNothing(t)
			s, w := stranger(t, &mortal{})
			f, err := os.Open(os.DevNull)
			require.NoError(t, err)
			defer f.Close()
			var fds []int
			for range test.n {
				fds = append(fds, int(f.Fd()))
			}
			frame, err := encode(test.m)
			require.NoError(t, err)
			_, _, err = w.c.WriteMsgUnix(frame, syscall.UnixRights(fds...), nil)
			require.NoError(t, err)
			m := w.hears(t)
			require.Equal(t, typeError, m.Type)
			require.Contains(t, m.Text, test.text)
			testgpu.Receive(t, s.Done())
			require.ErrorIs(t, s.Err(), ErrProtocol)
		})
	}
}

// The other end says why it breaks off.
func TestToldWhy(t *testing.T) {
	leavesNothing(t)
	s, w := stranger(t, &mortal{})
	w.say(t, message{Type: typeError, Code: codeProtocol, Text: "you\x07 misbehave"})
	w.close()
	testgpu.Receive(t, s.Done())
	require.ErrorIs(t, s.Err(), ErrProtocol)
	require.ErrorContains(t, s.Err(), "says: you  misbehave")
}

// Broken off in the middle of a message.
func TestCutOff(t *testing.T) {
	leavesNothing(t)
	for _, part := range []string{"", "\x10", "\x10\x00\x00\x00", "\x10\x00\x00\x00{\"type"} {
		s, w := stranger(t, &mortal{})
		_, err := w.c.Write([]byte(part))
		require.NoError(t, err)
		w.close()
		testgpu.Receive(t, s.Done())
		require.ErrorIs(t, s.Err(), cuda.ErrPeerGone)
		require.NotErrorIs(t, s.Err(), ErrProtocol)
		require.ErrorContains(t, s.Err(), "without a goodbye")
	}
}

// A peer that reads nothing blocks nobody.
func TestDeafPeer(t *testing.T) {
	leavesNothing(t)
	s, w := stranger(t, &mortal{})
	payload := []byte(`"` + strings.Repeat("x", 4000) + `"`)
	var err error
	for err == nil {
		err = s.sendTo("x", payload, nil)
	}
	require.ErrorIs(t, err, errNotReading)
	begin := time.Now()
	require.NoError(t, s.Close())
	require.Less(t, time.Since(begin), 3*time.Second)
	w.close()
}

// A peer that makes this end say ever more, and does not read it, is broken off.
func TestAnswersThatNobodyReads(t *testing.T) {
	leavesNothing(t)
	s, w := stranger(t, &mortal{})
	offer, err := encode(message{Type: typeOffer, ID: 1, Name: "x", Token: token(t)})
	require.NoError(t, err)
	withdraw, err := encode(message{Type: typeWithdraw, ID: 1})
	require.NoError(t, err)
	both := append(offer, withdraw...)
	s.mu.Lock() // much has been said before: all of it in answers takes long
	for s.queue.bytes < 2*queueBytes-1<<18 {
		s.post(message{Type: typeReleased, ID: 1})
	}
	s.mu.Unlock()
	for err == nil {
		_, err = w.c.Write(both)
	}
	testgpu.Receive(t, s.Done())
	require.ErrorIs(t, s.Err(), ErrProtocol)
	require.ErrorContains(t, s.Err(), "reads no answers")
}

func FuzzStream(f *testing.F) {
	all := ""
	for _, m := range samples() {
		frame, err := encode(m)
		require.NoError(f, err)
		f.Add(frame)
		all += string(frame)
	}
	for _, list := range [][]message{
		{{Type: typeOffer, ID: 1, Name: "x", Token: token(f)}, {Type: typeWithdraw, ID: 1}, {Type: typeLeave}, {Type: typeBye}},
		{{Type: typeMessage, Name: "x"}, {Type: typeMessage, Name: "y"}, {Type: typeLeave}},
	} {
		var b []byte
		for _, m := range list {
			frame, _ := encode(m)
			b = append(b, frame...)
		}
		f.Add(b)
	}
	f.Add([]byte(all))
	f.Fuzz(func(t *testing.T, stream []byte) {
		m := &mortal{}
		s, w := stranger(t, m)
		_, err := s.receiver("x", func(_ []byte, file *os.File) {
			if file != nil {
				file.Close()
			}
		})
		require.NoError(t, err)
		go func() {
			_, _ = w.c.Write(stream)
			_ = w.c.CloseWrite()
		}()
		testgpu.Receive(t, s.Done())
		require.NoError(t, s.Close())
		w.close()
		testgpu.WaitUntil(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.broken && s.stopWatching == nil })
	})
}
