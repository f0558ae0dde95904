//go:build race || !amd64

package native

import "sync/atomic"

// store writes a word that other goroutines load.
func store(p *atomic.Uint64, v uint64) { p.Store(v) }
