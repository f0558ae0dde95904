package drivertest_test

import (
	"sync"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
)

func init() { mutations = append(mutations, queueMutations...) }

var queueMutations = []mutation{
	{"a queue has room for all", []string{"driver: a full launch queue"}, func(api *driver.API, sound driver.API) {
		var held sync.Map
		api.StreamWaitValue32 = func(s driver.Stream, p driver.DevicePtr, value, flags uint32) driver.Result {
			held.Store(s, new(atomic.Int64))
			return sound.StreamWaitValue32(s, p, value, flags)
		}
		api.MemsetD8Async = func(p driver.DevicePtr, v uint8, n uint64, s driver.Stream) driver.Result {
			if n, some := held.Load(s); some && n.(*atomic.Int64).Add(1) > 500 {
				return success
			}
			return sound.MemsetD8Async(p, v, n, s)
		}
	}},
	{"a queue has no room for records", []string{"driver: records and waits"}, func(api *driver.API, sound driver.API) {
		var records atomic.Int64
		api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
			if records.Add(1) > 1020 {
				return driver.ErrorOutOfMemory
			}
			return sound.EventRecord(e, s)
		}
	}},
}
