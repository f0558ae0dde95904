package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// size is a number of bytes, as the value of a flag: 4096, 512KiB, 64MiB, 1GiB.
type size uint64

var units = []struct {
	name  string
	bytes uint64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// String writes the size with one decimal at most, in the largest unit that
// leaves at least 1.
func (s size) String() string {
	for _, u := range units {
		if uint64(s) >= u.bytes {
			n := strconv.FormatFloat(float64(s)/float64(u.bytes), 'f', 1, 64)
			return strings.TrimSuffix(n, ".0") + " " + u.name
		}
	}
	return "0 B"
}

// Set implements flag.Value.
func (s *size) Set(text string) error {
	digits, factor := text, uint64(1)
	for _, u := range units {
		if d, ok := cutSuffixFold(text, u.name); ok {
			digits, factor = strings.TrimSpace(d), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && n > math.MaxInt64/factor:
		return errors.New("too large")
	case err != nil:
		return fmt.Errorf("must be a number of bytes, such as 4096, 512KiB, 64MiB or 1GiB")
	case n == 0:
		return errors.New("must be at least 1 byte")
	}
	*s = size(n * factor)
	return nil
}

func cutSuffixFold(s, suffix string) (before string, found bool) {
	at := len(s) - len(suffix)
	if at < 0 || !strings.EqualFold(s[at:], suffix) {
		return s, false
	}
	return s[:at], true
}
