// Package stress has no code but tests: many goroutines, streams, events and rounds at once,
// and what waits, frees and copies cost then. PURECUDA_TEST_SECONDS and PURECUDA_TEST_ROUNDS
// make them longer; -short leaves them out.
package stress
