package wait

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A machine's clock may be wrong, and be set while waits go on: waits that began before and
// after that are in different loops, and an owner ends all of them.
func TestWrongClock(t *testing.T) {
	before, after := time.Unix(0, 0), time.Now()
	for name, end := range map[string]func(p *Poller, o *Owner, pt *flag){
		"done":  func(_ *Poller, _ *Owner, pt *flag) { pt.done.Store(true) },
		"ended": func(p *Poller, o *Owner, _ *flag) { o.End(p) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				var p Poller
				var o Owner
				pt := new(flag)
				told := make(chan error, 8)
				for i := range 8 {
					began := before
					if i%2 == 1 {
						began = after
					}
					require.False(t, p.virtual(began), "there is no clock but the machine's")
					require.True(t, p.park(&waiter{f: func(err error) { told <- err }, owner: &o}, pt, began))
				}
				parked(t, &p, 8)
				end(&p, &o, pt)
				var want error
				if name == "ended" {
					want = ErrEnded
				}
				for range 8 {
					require.Equal(t, want, get(t, told))
				}
				rest(t, &p)
			}
		})
	}
}
