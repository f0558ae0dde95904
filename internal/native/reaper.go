package native

import "sync"

// reaper destroys and frees in the background, one thing after the other: the driver may
// block the caller until the device is idle, with a thread each. Its goroutine runs only
// while there is something to do.
type reaper struct {
	mu   sync.Mutex
	todo []func()
	busy bool
}

// add has f called soon.
func (r *reaper) add(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.todo = append(r.todo, f)
	if !r.busy {
		r.busy = true
		go r.run()
	}
}

func (r *reaper) run() {
	for {
		r.mu.Lock()
		todo := r.todo
		r.todo, r.busy = nil, len(todo) > 0
		r.mu.Unlock()
		if len(todo) == 0 {
			return
		}
		for _, f := range todo {
			f()
		}
	}
}
