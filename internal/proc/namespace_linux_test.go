package proc

import (
	"errors"
	"io/fs"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const nested = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS

// A process of a namespace below this one is found under its number here, and
// recognised as what it thinks it is.
func TestNestedNamespace(t *testing.T) {
	both(t, func(t *testing.T, w *watcher) {
		c := play(t, "mounts", nested)
		own, err := Find(0)
		require.NoError(t, err)
		require.Equal(t, said(t, c), c.id)
		require.Equal(t, 1, c.id.PID)
		require.NotEqual(t, own.Namespace, c.id.Namespace)

		d, _ := watchIn(t, w, c.id)
		wrong := c.id
		wrong.Start++
		_, err = w.watch(wrong, func() {}, func() {})
		require.ErrorIs(t, err, fs.ErrNotExist, "its namespace is there, and it is not")
		c.kill(t)
		d.ended(t)
		_, err = w.watch(c.id, func() {}, func() {})
		require.Error(t, err)
	})
}

// Of a namespace that cannot be seen nothing is known.
func TestForeignNamespace(t *testing.T) {
	c := play(t, "waits", 0)
	p := c.id
	p.Namespace++
	_, err := Watch(p, func() {}, func() {})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.NotErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, strconv.FormatUint(p.Namespace, 10))
}

// With another namespace's /proc, numbers would be taken for others'.
func TestProcOfAnotherNamespace(t *testing.T) {
	c := play(t, "says", syscall.CLONE_NEWPID)
	require.Contains(t, c.lines.Text(), "/proc is of another PID namespace, where process 1 has number "+strconv.Itoa(c.pid()))
	require.Contains(t, c.lines.Text(), errors.ErrUnsupported.Error())
}
