//go:build race || !amd64

package native

import "sync/atomic"

// store writes a word for those who load it later.
func store(p *atomic.Uint64, v uint64) { p.Store(v) }
