package main

import (
	"context"
	"fmt"
)

// launches is how many times a graph is launched.
const launches = 3

// replay captures what run enqueues as a graph, launches that, and checks the
// results of each launch, which have been poisoned before.
func (p *pipeline) replay(ctx context.Context) error {
	var failed error
	graph, err := p.work.Capture(func() error {
		failed = p.enqueueAll(ctx)
		return failed
	})
	if failed != nil { // that streams were left in the capture follows from it
		return failed
	}
	if err != nil {
		return err
	}
	p.closers = append(p.closers, graph.Close)
	if p.nodes, err = graph.Nodes(); err != nil {
		return err
	}
	exec, err := graph.Instantiate()
	if err != nil {
		return err
	}
	p.closers = append(p.closers, exec.Close)
	for i := range launches {
		p.poisonResults()
		err := exec.Launch(p.work)
		if err == nil {
			err = p.work.SynchronizeContext(ctx)
		}
		if err == nil {
			err = p.check()
		}
		if err != nil {
			return fmt.Errorf("launch %d of %d: %w", i+1, launches, err)
		}
	}
	return nil
}
