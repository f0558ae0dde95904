package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
)

// TestMain makes the test binary the consumer when it is started as that.
func TestMain(m *testing.M) {
	if slices.Equal(os.Args[1:], []string{"-role", "consumer"}) {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestSimulated(t *testing.T) {
	require.Equal(t, []string{
		"There is no GPU here. This is simulated: two processes on a simulated GPU.",
		"consumer: 65536 elements of process 1001 are open",
		"producer: 1000 passes over 65536 elements are enqueued, the event is recorded behind them",
		"consumer: the event is done already: false",
		"consumer: all 65536 elements are 1000, as after the last pass",
	}, output(t, simulate))
}

func TestReal(t *testing.T) {
	drv, err := cuda.Open(nil)
	if err != nil || drv.DeviceCount() == 0 {
		if os.Getenv("CUDA_TEST_REQUIRE_GPU") == "1" {
			t.Fatalf("CUDA_TEST_REQUIRE_GPU=1, but there is no GPU: %v", err)
		}
		t.Skip("no GPU here")
	}
	lines := output(t, func(ctx context.Context, out io.Writer) error {
		return run(ctx, "producer", strings.NewReader(""), out)
	})
	require.Len(t, lines, 4)
	require.Regexp(t, `^consumer: 67108864 elements of process \d+ are open$`, lines[0])
	require.Equal(t, []string{
		"producer: 1000 passes over 67108864 elements are enqueued, the event is recorded behind them",
		"consumer: the event is done already: false",
		"consumer: all 67108864 elements are 1000, as after the last pass",
	}, lines[1:])
}

// A consumer that fails does not keep the producer waiting, and its error is told.
func TestConsumerFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, simulate(ctx, new(strings.Builder)), context.Canceled)
}

func TestNoToken(t *testing.T) {
	for text, says := range map[string]string{
		"":                "no token came",
		"cuda-token:AAAA": "no token came", // cut off
		"hello\n":         "begins with cuda-token:",
		"cuda-token:!\n":  "altered",
	} {
		require.ErrorContains(t, consume(t.Context(), nil, strings.NewReader(text), nil), says, "%q", text)
	}
}

// output returns the lines that f writes.
func output(t *testing.T, f func(context.Context, io.Writer) error) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := new(strings.Builder)
	require.NoError(t, f(ctx, out), "after %q", out)
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}
