package cuda

import "sync"

// chores are what is to be destroyed and freed on a device without anybody who waits for
// that. One goroutine does them, one after the other, and runs only while there are any:
// the driver may hold up whoever destroys something for as long as the device is busy,
// with a thread each.
type chores struct {
	mu   sync.Mutex
	todo []func()
	busy bool
}

// add has f done soon.
func (c *chores) add(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.todo = append(c.todo, f)
	if !c.busy {
		c.busy = true
		go c.do()
	}
}

func (c *chores) do() {
	for {
		c.mu.Lock()
		todo := c.todo
		c.todo, c.busy = nil, len(todo) > 0
		c.mu.Unlock()
		if len(todo) == 0 {
			return
		}
		for _, f := range todo {
			f()
		}
	}
}
