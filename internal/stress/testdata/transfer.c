// Copies pinned host memory to device 0 with the driver's own functions, again
// and again, and prints for each line that it reads how long the best of ROUNDS
// copies took, by events of the device and by the host's clock, in milliseconds.
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 20

static void *lib;

static void *find(const char *name) {
	void *f = dlsym(lib, name);
	if (!f) { fprintf(stderr, "no %s\n", name); exit(1); }
	return f;
}

static void ok(int r, const char *what) {
	if (r) { fprintf(stderr, "%s: %d\n", what, r); exit(1); }
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
	if (argc != 3) return 2;
	lib = dlopen(argv[1], RTLD_NOW);
	if (!lib) { fprintf(stderr, "%s\n", dlerror()); return 1; }
	size_t bytes = strtoull(argv[2], NULL, 10);
	int (*init)(unsigned) = find("cuInit");
	int (*retain)(void **, int) = find("cuDevicePrimaryCtxRetain");
	int (*push)(void *) = find("cuCtxPushCurrent_v2");
	int (*stream)(void **, unsigned, int) = find("cuStreamCreateWithPriority");
	int (*event)(void **, unsigned) = find("cuEventCreate");
	int (*record)(void *, void *) = find("cuEventRecord");
	int (*elapsed)(float *, void *, void *) = find("cuEventElapsedTime");
	int (*sync)(void *) = find("cuStreamSynchronize");
	int (*alloc)(uint64_t *, size_t) = find("cuMemAlloc_v2");
	int (*pin)(void **, size_t, unsigned) = find("cuMemHostAlloc");
	int (*copy)(uint64_t, uint64_t, size_t, void *) = find("cuMemcpyAsync");
	void *ctx, *s, *a, *b, *host;
	uint64_t dev;
	ok(init(0), "cuInit");
	ok(retain(&ctx, 0), "cuDevicePrimaryCtxRetain");
	ok(push(ctx), "cuCtxPushCurrent");
	ok(stream(&s, 1, 0), "cuStreamCreateWithPriority");
	ok(event(&a, 0), "cuEventCreate");
	ok(event(&b, 0), "cuEventCreate");
	ok(alloc(&dev, bytes), "cuMemAlloc");
	ok(pin(&host, bytes, 1), "cuMemHostAlloc");
	for (size_t i = 0; i < bytes; i++) ((char *)host)[i] = (char)i;
	char line[8];
	while (fgets(line, sizeof line, stdin)) {
		double best_device = 1e30, best_host = 1e30;
		for (int i = 0; i < ROUNDS; i++) {
			double start = now();
			ok(record(a, s), "cuEventRecord");
			ok(copy(dev, (uint64_t)(uintptr_t)host, bytes, s), "cuMemcpyAsync");
			ok(record(b, s), "cuEventRecord");
			ok(sync(s), "cuStreamSynchronize");
			double took = now() - start;
			float ms;
			ok(elapsed(&ms, a, b), "cuEventElapsedTime");
			if (ms < best_device) best_device = ms;
			if (took < best_host) best_host = took;
		}
		printf("%f %f\n", best_device, best_host);
		fflush(stdout);
	}
	return 0;
}
