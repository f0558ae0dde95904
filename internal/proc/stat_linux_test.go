package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The fields 10 to 20 and 23 to 30; of those only the number of threads matters.
const (
	middle = "1 2 3 4 5 6 7 8 9 0 10" // 10 threads
	tail   = "1 2 3 4 5 6 7 8"
)

func TestParseStat(t *testing.T) {
	good := func(name, state, flags, start, pending string) string {
		return fmt.Sprintf("17 (%s) %s 1 17 17 0 -1 %s %s 12 %s %s %s 0 0\n", name, state, flags, middle, start, tail, pending)
	}
	for name, tt := range map[string]struct {
		text string
		want stat
	}{
		"ordinary":                        {good("cat", "R", "4194304", "134720", "0"), stat{'R', 4194304, 10, 134720, 0}},
		"spaces and parentheses in names": {good("a) Z 1 (b) ) ", "S", "0", "7", "256"), stat{'S', 0, 10, 7, 256}},
		"a line break in the name":        {good("a\n) b\n", "S", "0", "7", "256"), stat{'S', 0, 10, 7, 256}},
		"no name":                         {good("", "Z", "4", "18446744073709551615", "0"), stat{'Z', 4, 10, 1<<64 - 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := parseStat([]byte(tt.text))
			require.NoError(t, err)
			require.Equal(t, tt.want, s)
		})
	}
	for name, text := range map[string]string{
		"nothing":                "",
		"a name only":            "17 (cat)",
		"cut off":                "17 (cat) R 1 17 17 0 -1 4194304 " + middle + " 12 134720 " + tail,
		"flags that are no flag": good("cat", "R", "x", "1", "0"),
		"a negative start":       good("cat", "R", "0", "-1", "0"),
		"a long state":           good("cat", "RR", "0", "1", "0"),
		"no pending signals":     good("cat", "R", "0", "1", ""+"-"),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseStat([]byte(text))
			require.ErrorIs(t, err, errStat)
		})
	}
}

func TestStage(t *testing.T) {
	for name, tt := range map[string]struct {
		stat
		want stage
	}{
		"runs":                       {stat{state: 'R', flags: 0x400000}, alive},
		"sleeps with signals":        {stat{state: 'S', pending: 1<<14 | 1<<7 | 1<<9}, alive},
		"is stopped":                 {stat{state: 'T'}, alive},
		"is frozen while it ends":    {stat{state: 'D', flags: 0x400004}, dying},
		"dumps core":                 {stat{state: 'D', flags: 0x200}, dying},
		"waits for a core dump":      {stat{state: 'D', flags: 0x8}, dying},
		"has been killed":            {stat{state: 'R', flags: 0x400}, dying},
		"is killed, and cannot know": {stat{state: 'D', pending: 1 << 8}, dying},
		"is a zombie":                {stat{state: 'Z', flags: 0x4}, gone},
		"is dead":                    {stat{state: 'X'}, gone},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.want, tt.stage()) })
	}
}

func TestParseStatDoesNotAllocate(t *testing.T) {
	text, err := os.ReadFile("/proc/self/stat")
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() { _, err = parseStat(text) }))
	require.NoError(t, err)
}

// The parser agrees with one that goes about it in another way, and the name never
// matters.
func FuzzStat(f *testing.F) {
	own, err := os.ReadFile("/proc/self/stat")
	require.NoError(f, err)
	f.Add(own)
	f.Add([]byte("1 (a) b) S 0 -1 0 0 0 4 " + middle + " 0 5 " + tail + " 256 "))
	f.Add([]byte("1 () ) "))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseStat(text)
		if err != nil {
			require.Equal(t, stat{}, s)
		}
		behind := string(text[strings.LastIndexByte(string(text), ')')+1:])
		fields := strings.Split(behind, " ")[1:]
		good := len(fields) > fieldPending-fieldState+1 && len(fields[0]) == 1
		number := func(field int) (n uint64) {
			if good {
				var err error
				n, err = strconv.ParseUint(fields[field-fieldState], 10, 64)
				good = err == nil
			}
			return n
		}
		want := stat{flags: number(fieldFlags), threads: number(fieldThreads), start: number(fieldStart), pending: number(fieldPending)}
		require.Equal(t, good, err == nil)
		if !good {
			return
		}
		want.state = fields[0][0]
		require.Equal(t, want, s)
		renamed, err := parseStat([]byte("1 (x) Z (" + behind + ") y\n)" + behind))
		require.NoError(t, err)
		require.Equal(t, s, renamed)
	})
}

// What a look costs, see interval.
func BenchmarkLook(b *testing.B) {
	f, err := open(os.Getpid())
	require.NoError(b, err)
	defer f.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := look(os.Getpid(), f); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Find(os.Getppid()); err != nil {
			b.Fatal(err)
		}
	}
}
