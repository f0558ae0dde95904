//go:build unix

package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSignals sends signals to itself, in processes of their own: which of them
// ends the process depends on the command.
func TestSignals(t *testing.T) {
	const variable = "PURECUDA_TEST_SIGNALS"
	if command := os.Getenv(variable); command != "" {
		ctx := interruptible(strings.Fields(command))
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
		select {
		case <-ctx.Done():
			os.Stdout.WriteString("the context ended\n")
		case <-time.After(10 * time.Second):
			t.Fatal("the process outlived a signal that its context does not tell of")
		}
		for range 1000 { // the handler goes a moment after the context
			require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatal("the process outlived the signals after the first")
	}
	for command, says := range map[string]string{
		"info":             "",
		"help":             "",
		"demo -driver sim": "the context ended\n",
		"bench":            "the context ended\n",
	} {
		t.Run(command, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestSignals$")
			cmd.Env = append(os.Environ(), variable+"="+command)
			out, err := cmd.Output()
			require.Equal(t, says, string(out))
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			status := exit.Sys().(syscall.WaitStatus)
			require.True(t, status.Signaled() && status.Signal() == syscall.SIGTERM, "%v", err)
		})
	}
}
