package stress_test

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// skipShort skips a test under -short.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long")
	}
}

// duration is how long a storm goes on: usual, or the seconds in PURECUDA_TEST_SECONDS.
func duration(usual time.Duration) time.Duration {
	if n, err := strconv.Atoi(os.Getenv("PURECUDA_TEST_SECONDS")); err == nil {
		return time.Duration(n) * time.Second
	}
	return usual
}

// rounds is how often something is repeated: usual, or the number in PURECUDA_TEST_ROUNDS.
func rounds(usual int) int {
	if n, err := strconv.Atoi(os.Getenv("PURECUDA_TEST_ROUNDS")); err == nil {
		return n
	}
	return usual
}
