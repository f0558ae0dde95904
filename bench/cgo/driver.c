#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define DEFINE(name, params, args) int(*p_##name) params;
DRIVER(DEFINE)

#define ENTRY(name, params, args) {#name, (void **)&p_##name},
static const struct {
	const char *symbol;
	void **function;
} functions[] = {DRIVER(ENTRY)};

static char *missing(const char *what) {
	char *s;
	return asprintf(&s, "no %s", what) < 0 ? strdup(what) : s;
}

char *open_driver(const char *path) {
	void *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!lib) return strdup(dlerror());
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
		if (!(*functions[i].function = dlsym(lib, functions[i].symbol))) return missing(functions[i].symbol);
	return NULL;
}

handle address_of(const char *symbol) {
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
		if (strcmp(functions[i].symbol, symbol) == 0) return (handle)*functions[i].function;
	return 0;
}

static int64_t (*one)(const void *, int, int64_t);
static int64_t (*threads)(const void *, int, int, int64_t, int (*)(handle), handle);

char *open_loop(const char *path) {
	void *lib = dlopen(path, RTLD_NOW);
	if (!lib) return strdup(dlerror());
	if (!(*(void **)&one = dlsym(lib, "purecuda_loop"))) return missing("purecuda_loop");
	if (!(*(void **)&threads = dlsym(lib, "purecuda_threads"))) return missing("purecuda_threads");
	return NULL;
}

int64_t loop_one(const void *calls, int k, int64_t n) { return one(calls, k, n); }

int64_t loop_threads(const void *calls, int k, int n_threads, int64_t n, handle context) {
	return threads(calls, k, n_threads, n, p_cuCtxSetCurrent, context);
}
