// A driver library that does as little as the library's own calls need, all on
// the host: enough to measure what a call costs without a GPU. Functions that
// are not here answer success and do nothing; the test adds them.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
static _Atomic uintptr_t next = 0x1000;

CUresult cuDriverGetVersion(int *v) { *v = 13000; return 0; }
CUresult cuDeviceGetCount(int *n) { *n = 1; return 0; }
CUresult cuDeviceGet(int *d, int i) { *d = i; return 0; }
CUresult cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; *c = (void *)0x10; return 0; }
// Like NVIDIA's, these want a context that is current on the calling thread: what makes
// something, and what is for the default stream.
static _Thread_local void *contexts[8];
static _Thread_local int depth = 0;
static const int no_context = 201;
CUresult cuCtxPushCurrent_v2(void *c) { contexts[depth++] = c; return 0; }
CUresult cuCtxPopCurrent_v2(void **c) { if (!depth) return no_context; *c = contexts[--depth]; return 0; }
CUresult cuCtxGetCurrent(void **c) { *c = depth ? contexts[depth - 1] : NULL; return 0; }
CUresult cuEventRecord(void *e, void *s) { (void)e; return s || depth ? 0 : no_context; }
CUresult cuStreamWaitEvent(void *s, void *e, unsigned f) { (void)e, (void)f; return s || depth ? 0 : no_context; }
CUresult cuStreamQuery(void *s) { return s || depth ? 0 : no_context; }
CUresult cuStreamCreateWithPriority(void **s, unsigned f, int p) {
	(void)f, (void)p;
	*s = (void *)next++;
	return depth ? 0 : no_context;
}
CUresult cuStreamGetId(void *s, unsigned long long *id) { *id = (uintptr_t)s; return 0; }
// One capture at a time, of any stream.
static _Atomic int capturing = 0;
CUresult cuStreamBeginCapture_v2(void *s, int mode) { (void)s, (void)mode; capturing = 1; return 0; }
CUresult cuStreamEndCapture(void *s, void **g) { (void)s; capturing = 0; *g = (void *)next++; return 0; }
CUresult cuStreamIsCapturing(void *s, int *status) { (void)s; *status = capturing; return 0; }
CUresult cuStreamGetCaptureInfo(void *s, int *status, unsigned long long *id) { (void)s; *status = capturing; *id = 1; return 0; }
CUresult cuGraphInstantiateWithFlags(void **x, void *g, unsigned long long f) { (void)g, (void)f; *x = (void *)next++; return 0; }
CUresult cuEventCreate(void **e, unsigned f) { (void)f; *e = (void *)next++; return depth ? 0 : no_context; }
CUresult cuEventElapsedTime_v2(float *ms, void *a, void *b) { (void)a, (void)b; *ms = 0.5f; return 0; }
// Opening takes 64 bytes by value; the event is what they add up to.
typedef struct { unsigned char bytes[64]; } CUipcEventHandle;
CUresult cuIpcOpenEventHandle(void **e, CUipcEventHandle h) {
	uintptr_t sum = 0;
	for (size_t i = 0; i < sizeof h.bytes; i++) sum = sum * 31 + h.bytes[i];
	*e = (void *)sum;
	return 0;
}
CUresult cuMemAlloc_v2(unsigned long long *p, size_t n) { *p = (uintptr_t)malloc(n); return 0; }
CUresult cuMemFree_v2(unsigned long long p) { free((void *)(uintptr_t)p); return 0; }
CUresult cuMemHostAlloc(void **p, size_t n, unsigned f) { (void)f; *p = malloc(n); return 0; }
CUresult cuMemFreeHost(void *p) { free(p); return 0; }
CUresult cuDeviceGetAttribute(int *v, int a, int d) { (void)a, (void)d; *v = 1; return 0; }
CUresult cuDeviceGetDefaultMemPool(void **pool, int d) { (void)d; *pool = (void *)0x30; return 0; }
CUresult cuMemAllocFromPoolAsync(unsigned long long *p, size_t n, void *pool, void *s) { (void)pool, (void)s; *p = (uintptr_t)malloc(n); return 0; }
CUresult cuMemFreeAsync(unsigned long long p, void *s) { (void)s; free((void *)(uintptr_t)p); return 0; }
CUresult cuModuleLoadDataEx(void **m, const void *image, unsigned n, int *options, void **values) {
	(void)image, (void)n, (void)options, (void)values;
	*m = (void *)next++;
	return 0;
}
// A kernel takes a pointer, a 64-bit and a 32-bit number, or nothing if it is empty.
static void *const empty = (void *)0x20;
CUresult cuModuleGetFunction(void **f, void *m, const char *name) {
	(void)m;
	*f = strstr(name, "empty") ? empty : (void *)next++;
	return 0;
}
CUresult cuFuncGetParamInfo(void *f, size_t i, size_t *offset, size_t *size) {
	if (f == empty || i > 2) return 1;
	*offset = 8 * i, *size = i < 2 ? 8 : 4;
	return 0;
}
