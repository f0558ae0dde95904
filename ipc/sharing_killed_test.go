package ipc_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// rounds is how often something is tried whose moment matters.
func rounds(t *testing.T, otherwise int) int {
	s := os.Getenv("PURECUDA_TEST_ROUNDS")
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

var deathPoints = []string{"before the record", "during the work", "after the work"}

// atDeathPoint brings from, who has filled the memory with v, to the point where
// somebody is killed. The work is a kernel of ten seconds.
func atDeathPoint(t *testing.T, from hand, v, point int) {
	t.Helper()
	tells(t, from, "fill", strconv.Itoa(v))
	tells(t, from, "sync")
	if point == 1 {
		tells(t, from, "spin", "10000")
	}
	if point > 0 {
		tells(t, from, "record")
	}
	if point == 2 {
		tells(t, from, "sync")
	}
}

// The survivor, one process for all rounds, sees exporters die.
func TestExporterIsKilled(t *testing.T) {
	here, there := twoWorkers(t)
	d, s := here.d, here.s
	other := testgpu.NewStream(t, d, nil)
	var worst [3]time.Duration
	n := rounds(t, 30)
	for i := range n {
		point, v := i%3, 100+i
		if i > 0 {
			there = startWorker(t)
		}
		share(t, there, here, "text")
		atDeathPoint(t, there, v, point)
		e := here.event
		require.Equal(t, point != 1, testgpu.Query(t, e), deathPoints[point])
		type end struct {
			name string
			err  error
			at   time.Time
		}
		ends := make(chan end, 2*len(testgpu.WaitWays)+2)
		begin := func() (waiting int) {
			for name, wait := range testgpu.WaitWays {
				go func() { err := wait(context.Background(), e); ends <- end{name, err, time.Now()} }()
			}
			go func() { err := e.WaitAlive(context.Background(), s); ends <- end{"WaitAlive", err, time.Now()} }()
			return len(testgpu.WaitWays) + 1
		}
		waiting := begin()
		if point == 1 {
			testgpu.Parked(t, d.Driver(), waiting)
		}
		killed := there.kill()
		for range waiting {
			select {
			case x := <-ends:
				if point != 1 {
					require.NoError(t, x.err, "round %d, %s, %s", i, deathPoints[point], x.name)
					continue
				}
				require.ErrorIs(t, x.err, cuda.ErrPeerGone, "round %d, %s", i, x.name)
				took := x.at.Sub(killed)
				worst[point] = max(worst[point], took)
				require.Less(t, took, 100*time.Millisecond, "round %d, %s", i, x.name)
			case <-time.After(10 * time.Second):
				t.Fatalf("round %d, %s: a wait does not end", i, deathPoints[point])
			}
		}

		// Noticed or not: waits that begin now end as well.
		for range begin() {
			select {
			case x := <-ends:
				if point == 1 {
					require.ErrorIs(t, x.err, cuda.ErrPeerGone, "round %d, %s", i, x.name)
				} else {
					require.NoError(t, x.err, "round %d, %s, %s", i, deathPoints[point], x.name)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("round %d, %s: a later wait does not end", i, deathPoints[point])
			}
		}
		if point == 1 {
			requirePeerGone(t, e, other)
		} else {
			testgpu.WaitUntil(t, func() bool { return errors.Is(e.Record(other), cuda.ErrPeerGone) })
			worst[point] = max(worst[point], time.Since(killed))
			require.NoError(t, other.Synchronize())
			requireDone(t, e, other)
		}

		// All else goes on, and the memory is there.
		tells(t, here, "copy")
		tells(t, here, "sync")
		tells(t, here, "check", strconv.Itoa(v))
		tells(t, here, "fill", "5")
		tells(t, here, "copy")
		testgpu.Returns(t, func() { require.NoError(t, d.Synchronize()) })
		tells(t, here, "check", "5")
		testgpu.Returns(t, func() { tells(t, here, "drop") })
	}
	t.Logf("%d rounds; waits ended at most %v after the signal; without one the death was noticed after %v and %v",
		n, worst[1], worst[0], worst[2])
}

// The exporter, one process for all rounds, sees importers die.
func TestImporterIsKilled(t *testing.T) {
	here, there := twoWorkers(t)
	for i := range rounds(t, 6) {
		if i > 0 {
			there = startWorker(t)
		}
		share(t, here, there, "text")
		token := tells(t, here, "export", "memory", "text")
		v := strconv.Itoa(50 + i)
		tells(t, here, "fill", v)
		switch i % 3 {
		case 1:
			tells(t, here, "hold")
			tells(t, here, "record")
			tells(t, there, "wait")
			tells(t, there, "copy")
			require.Equal(t, "false false", tells(t, there, "query"))
		case 2:
			tells(t, here, "record")
			tells(t, there, "await")
			tells(t, there, "copy")
			tells(t, there, "spin", "10000") // it uses the memory's device when it dies
		}
		there.kill()
		time.Sleep(time.Duration(i) * 10 * time.Millisecond) // at some point of its end
		tells(t, here, "release")
		tells(t, here, "await")
		tells(t, here, "copy")
		tells(t, here, "sync")
		tells(t, here, "check", v)
		tells(t, here, "record")
		tells(t, here, "await")
		testgpu.Returns(t, func() { require.NoError(t, here.d.Synchronize()) })

		next := startWorker(t) // as if nothing had been
		tells(t, next, "import", "memory", "text", token)
		tells(t, next, "import", "event", "text", tells(t, here, "export", "event", "text"))
		tells(t, next, "wait")
		tells(t, next, "copy")
		tells(t, next, "sync")
		tells(t, next, "check", v)
		next.End()
		tells(t, here, "drop")
	}
}
