// The driver as a cgo program calls it: its functions with the prototypes of cuda.h,
// each through a pointer, as a linker would do it. All handles and addresses are
// numbers, so cgo has no pointers of Go's to look for in the arguments.
#include <stdint.h>
#include <stdlib.h>

typedef uintptr_t handle;

#define DRIVER(F) \
	F(cuInit, (unsigned flags), (flags)) \
	F(cuDriverGetVersion, (int *version), (version)) \
	F(cuDevicePrimaryCtxRetain, (handle *c, int device), (c, device)) \
	F(cuCtxSetCurrent, (handle c), (c)) \
	F(cuCtxPushCurrent_v2, (handle c), (c)) \
	F(cuCtxPopCurrent_v2, (handle *c), (c)) \
	F(cuCtxSynchronize, (void), ()) \
	F(cuDeviceGetMemPool, (handle *pool, int device), (pool, device)) \
	F(cuMemPoolSetAttribute, (handle pool, int attribute, uint64_t *value), (pool, attribute, value)) \
	F(cuModuleLoadData, (handle *m, const char *image), (m, image)) \
	F(cuModuleGetFunction, (handle *f, handle m, const char *name), (f, m, name)) \
	F(cuStreamCreateWithPriority, (handle *s, unsigned flags, int priority), (s, flags, priority)) \
	F(cuStreamDestroy_v2, (handle s), (s)) \
	F(cuStreamQuery, (handle s), (s)) \
	F(cuStreamSynchronize, (handle s), (s)) \
	F(cuStreamWaitEvent, (handle s, handle e, unsigned flags), (s, e, flags)) \
	F(cuStreamBeginCapture_v2, (handle s, int mode), (s, mode)) \
	F(cuStreamEndCapture, (handle s, handle *g), (s, g)) \
	F(cuEventCreate, (handle *e, unsigned flags), (e, flags)) \
	F(cuEventDestroy_v2, (handle e), (e)) \
	F(cuEventRecord, (handle e, handle s), (e, s)) \
	F(cuEventQuery, (handle e), (e)) \
	F(cuEventSynchronize, (handle e), (e)) \
	F(cuEventElapsedTime_v2, (float *ms, handle start, handle end), (ms, start, end)) \
	F(cuMemAlloc_v2, (handle *p, size_t n), (p, n)) \
	F(cuMemHostAlloc, (handle *p, size_t n, unsigned flags), (p, n, flags)) \
	F(cuMemAllocAsync, (handle *p, size_t n, handle s), (p, n, s)) \
	F(cuMemFreeAsync, (handle p, handle s), (p, s)) \
	F(cuMemcpyAsync, (handle dst, handle src, size_t n, handle s), (dst, src, n, s)) \
	F(cuGraphInstantiateWithFlags, (handle *x, handle g, uint64_t flags), (x, g, flags)) \
	F(cuGraphLaunch, (handle x, handle s), (x, s)) \
	F(cuLaunchKernel, \
	  (handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, \
	   handle s, handle params, handle extra), \
	  (f, gx, gy, gz, bx, by, bz, shared, s, params, extra))

#define WRAP(name, params, args) \
	extern int(*p_##name) params; \
	static inline int name params { return p_##name args; }
DRIVER(WRAP)
#undef WRAP

// open_driver returns NULL, or what is missing, to be freed.
char *open_driver(const char *path);
// address_of returns the address of a function of the driver, or 0.
handle address_of(const char *symbol);

// What takes more than one call: who minds the cost makes them in one go.
static inline int record_and_wait(handle e, handle s, handle other) {
	int r = cuEventRecord(e, s);
	return r != 0 ? r : cuStreamWaitEvent(other, e, 0);
}

// with_context does a call with the context current.
#define with_context(c, call) \
	do { \
		int r = cuCtxPushCurrent_v2(c); \
		if (r != 0) return r; \
		r = (call); \
		handle popped; \
		int p = cuCtxPopCurrent_v2(&popped); \
		return r != 0 ? r : p; \
	} while (0)

static inline int record_default(handle c, handle e) { with_context(c, cuEventRecord(e, 0)); }
static inline int wait_default(handle c, handle e) { with_context(c, cuStreamWaitEvent(0, e, 0)); }
static inline int query_default(handle c) { with_context(c, cuStreamQuery(0)); }
static inline int wait_stream_default(handle c, handle e, handle s) { with_context(c, record_and_wait(e, s, 0)); }

// The C loop.
char *open_loop(const char *path);
int64_t loop_one(const void *calls, int k, int64_t n);
int64_t loop_threads(const void *calls, int k, int threads, int64_t n, handle context);
