// A driver library that does as little as the library's own calls need, all on
// the host: enough to measure what a call costs without a GPU. Functions that
// are not here answer success and do nothing; the test adds them.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef int CUresult;
static _Atomic uintptr_t next = 0x1000;

CUresult cuDriverGetVersion(int *v) { *v = 13000; return 0; }
CUresult cuDeviceGetCount(int *n) { *n = 1; return 0; }
CUresult cuDeviceGet(int *d, int i) { *d = i; return 0; }
CUresult cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; *c = (void *)0x10; return 0; }
CUresult cuStreamCreateWithPriority(void **s, unsigned f, int p) { (void)f, (void)p; *s = (void *)next++; return 0; }
CUresult cuStreamGetId(void *s, unsigned long long *id) { *id = (uintptr_t)s; return 0; }
// One capture at a time, of any stream.
static _Atomic int capturing = 0;
CUresult cuStreamBeginCapture_v2(void *s, int mode) { (void)s, (void)mode; capturing = 1; return 0; }
CUresult cuStreamEndCapture(void *s, void **g) { (void)s; capturing = 0; *g = (void *)next++; return 0; }
CUresult cuStreamIsCapturing(void *s, int *status) { (void)s; *status = capturing; return 0; }
CUresult cuStreamGetCaptureInfo(void *s, int *status, unsigned long long *id) { (void)s; *status = capturing; *id = 1; return 0; }
CUresult cuGraphInstantiateWithFlags(void **x, void *g, unsigned long long f) { (void)g, (void)f; *x = (void *)next++; return 0; }
CUresult cuEventCreate(void **e, unsigned f) { (void)f; *e = (void *)next++; return 0; }
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
CUresult cuMemAllocFromPoolAsync(unsigned long long *p, size_t n, void *pool, void *s) { (void)pool, (void)s; *p = (uintptr_t)malloc(n); return 0; }
CUresult cuMemFreeAsync(unsigned long long p, void *s) { (void)s; free((void *)(uintptr_t)p); return 0; }
CUresult cuModuleLoadDataEx(void **m, const void *image, unsigned n, int *options, void **values) {
	(void)image, (void)n, (void)options, (void)values;
	*m = (void *)next++;
	return 0;
}
CUresult cuModuleGetFunction(void **f, void *m, const char *name) { (void)m, (void)name; *f = (void *)next++; return 0; }
// Every kernel takes a pointer, a 64-bit and a 32-bit number.
CUresult cuFuncGetParamInfo(void *f, size_t i, size_t *offset, size_t *size) {
	(void)f;
	if (i > 2) return 1;
	*offset = 8 * i, *size = i < 2 ? 8 : 4;
	return 0;
}
