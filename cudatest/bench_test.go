package cudatest

import (
	"testing"

	"github.com/purecuda/cuda/driver"
)

// These measure the simulation itself, so that tests on it stay fast. They say
// nothing about a GPU.

func BenchmarkSimulatedRecord(b *testing.B) {
	for name, flags := range map[string]uint32{"untimed": driver.EventDisableTiming, "timed": 0} {
		b.Run(name, func(b *testing.B) {
			bed := newBed(b, Config{})
			s, e := bed.stream(0, driver.StreamNonBlocking), bed.event(0, flags)
			b.ReportAllocs()
			for b.Loop() {
				bed.EventRecord(e, s)
			}
		})
	}
}

func BenchmarkSimulatedQuery(b *testing.B) {
	bed := newBed(b, Config{})
	s, e := bed.stream(0, driver.StreamNonBlocking), bed.event(0, driver.EventDisableTiming)
	defer bed.gpu.Hold(Handle(s))()
	bed.ok(bed.EventRecord(e, s))
	b.ReportAllocs()
	for b.Loop() {
		bed.EventQuery(e)
	}
}

func BenchmarkSimulatedWait(b *testing.B) {
	bed := newBed(b, Config{})
	s, t := bed.stream(0, driver.StreamNonBlocking), bed.stream(0, driver.StreamNonBlocking)
	e := bed.event(0, driver.EventDisableTiming)
	b.ReportAllocs()
	for b.Loop() {
		bed.EventRecord(e, s)
		bed.StreamWaitEvent(t, e, 0)
	}
}

func BenchmarkSimulatedCreate(b *testing.B) {
	bed := newBed(b, Config{})
	bed.on(0, func() {
		b.ReportAllocs()
		for b.Loop() {
			e, _ := bed.EventCreate(driver.EventDisableTiming)
			bed.EventDestroy(e)
		}
	})
}
