package image

import (
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// written does what a driver does with the options of a log, and returns the log.
func written(t *testing.T, errors, info string) *Log {
	t.Helper()
	l := NewLog()
	count, options, values := l.Options()
	places := make(map[driver.JITOption]unsafe.Pointer) // of the options' values
	for i, option := range unsafe.Slice((*driver.JITOption)(options), count) {
		places[option] = unsafe.Add(values, uintptr(i)*unsafe.Sizeof(uintptr(0)))
	}
	require.Len(t, places, 4)
	write := func(text string, buffer, size driver.JITOption) {
		room := *(*uintptr)(places[size])
		require.EqualValues(t, logSize, room)
		copy(unsafe.Slice(*(**byte)(places[buffer]), room), text)
	}
	write(errors, driver.JITErrorLogBuffer, driver.JITErrorLogBufferSize)
	write(info, driver.JITInfoLogBuffer, driver.JITInfoLogBufferSize)
	runtime.KeepAlive(l)
	return l
}

func TestLog(t *testing.T) {
	full := strings.Repeat("x", logSize)
	for name, c := range map[string]struct{ errors, info, want string }{
		"nothing":      {"", "", ""},
		"errors":       {"ptxas: line 1\n", "", "ptxas: line 1"},
		"info":         {"", "\n12 registers \n", "12 registers"},
		"both":         {"ptxas", "12 registers", "ptxas"},
		"white space":  {" \n", "12 registers", "12 registers"},
		"byte 0":       {"ptxas\x00left over", "", "ptxas"},
		"no room left": {full + "more", full, full},
	} {
		require.Equal(t, c.want, written(t, c.errors, c.info).String(), name)
	}
}
