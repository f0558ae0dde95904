//go:build ignore

// Driver calls in a C loop: what the same calls cost without Go, Python or any
// library around them. It is compiled where it is measured and loaded by every
// program that measures, so that all compare with the same machine code.

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

// A call is of fn with the first n of arg, integers and pointers. Where load has a
// bit, the argument is the address of the word to pass: what an earlier call wrote.
struct call {
	int (*fn)(void);
	uint32_t n;
	uint32_t load;
	uint64_t arg[11];
};

_Static_assert(sizeof(struct call) == 104, "other programs fill in this struct");

typedef uint64_t word;
typedef int (*fn1)(word);
typedef int (*fn2)(word, word);
typedef int (*fn3)(word, word, word);
typedef int (*fn4)(word, word, word, word);
typedef int (*fn5)(word, word, word, word, word);
typedef int (*fn6)(word, word, word, word, word, word);
typedef int (*fn7)(word, word, word, word, word, word, word);
typedef int (*fn8)(word, word, word, word, word, word, word, word);
typedef int (*fn9)(word, word, word, word, word, word, word, word, word);
typedef int (*fn10)(word, word, word, word, word, word, word, word, word, word);
typedef int (*fn11)(word, word, word, word, word, word, word, word, word, word, word);

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// The result for a struct that nobody should have filled in so: INVALID_VALUE.
enum { invalid = 1, operating_system = 304 };

static inline int perform(const struct call *c) {
	word loaded[11];
	const word *a = c->arg;
	if (c->load) {
		for (uint32_t i = 0; i < c->n; i++)
			loaded[i] = c->load >> i & 1 ? *(const word *)(uintptr_t)a[i] : a[i];
		a = loaded;
	}
	switch (c->n) {
	case 0: return c->fn();
	case 1: return ((fn1)c->fn)(a[0]);
	case 2: return ((fn2)c->fn)(a[0], a[1]);
	case 3: return ((fn3)c->fn)(a[0], a[1], a[2]);
	case 4: return ((fn4)c->fn)(a[0], a[1], a[2], a[3]);
	case 5: return ((fn5)c->fn)(a[0], a[1], a[2], a[3], a[4]);
	case 6: return ((fn6)c->fn)(a[0], a[1], a[2], a[3], a[4], a[5]);
	case 7: return ((fn7)c->fn)(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
	case 8: return ((fn8)c->fn)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
	case 9: return ((fn9)c->fn)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
	case 10: return ((fn10)c->fn)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
	case 11: return ((fn11)c->fn)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
	}
	return invalid;
}

// One call with few arguments, again and again: nothing in the loop but the call,
// the look at its result and the count, as somebody would write it by hand.
#define REPEAT(call) \
	do { \
		for (int64_t i = 0; i < n; i++) \
			if ((r = (call)) != 0) return r; \
		return 0; \
	} while (0)

static int repeat(const struct call *calls, int k, int64_t n) {
	int r;
	if (k == 1 && calls->load == 0) {
		int (*const f)(void) = calls->fn;
		const word a = calls->arg[0], b = calls->arg[1], c = calls->arg[2], d = calls->arg[3], e = calls->arg[4];
		switch (calls->n) {
		case 0: REPEAT(f());
		case 1: REPEAT(((fn1)f)(a));
		case 2: REPEAT(((fn2)f)(a, b));
		case 3: REPEAT(((fn3)f)(a, b, c));
		case 4: REPEAT(((fn4)f)(a, b, c, d));
		case 5: REPEAT(((fn5)f)(a, b, c, d, e));
		}
	}
	for (int64_t i = 0; i < n; i++)
		for (int j = 0; j < k; j++)
			if ((r = perform(&calls[j])) != 0) return r;
	return 0;
}

// purecuda_loop does the sequence of k calls n times. It returns the nanoseconds
// that took, or -(CUresult) of the first call that failed, which is the last made.
int64_t purecuda_loop(const struct call *calls, int k, int64_t n) {
	int64_t begin = now();
	int r = repeat(calls, k, n);
	int64_t end = now();
	return r != 0 ? -(int64_t)r : end - begin;
}

// What the threads of one purecuda_threads share. The last thread that arrives
// takes the time and lets all go.
struct common {
	int k, threads;
	int64_t n;
	int (*set_current)(void *);
	void *context;
	atomic_int arrived;
	atomic_int go; // 1: begin; -1: a thread could not be made, so leave
	int64_t begin;
};

struct thread {
	pthread_t id;
	struct common *common;
	const struct call *calls;
	int result;
	int64_t end;
};

static void *work(void *arg) {
	struct thread *t = arg;
	struct common *c = t->common;
	t->result = c->set_current(c->context);
	if (atomic_fetch_add(&c->arrived, 1) + 1 == c->threads) {
		c->begin = now();
		atomic_store(&c->go, 1);
	}
	int go;
	// Who spins must leave the processor now and then to those that have none yet.
	for (int spins = 1; (go = atomic_load(&c->go)) == 0; spins++)
		if (spins % 1000 == 0) sched_yield();
	if (go == 1 && t->result == 0) t->result = repeat(t->calls, c->k, c->n);
	t->end = now();
	return NULL;
}

// purecuda_threads lets each of several threads do its own sequence of k calls n
// times, thread t those from calls[t*k], in the context. It returns the nanoseconds
// from the common begin to the end of the last, or -(CUresult) of a call that failed.
int64_t purecuda_threads(const struct call *calls, int k, int threads, int64_t n,
                         int (*set_current)(void *), void *context) {
	struct common c = {.k = k, .threads = threads, .n = n, .set_current = set_current, .context = context};
	struct thread *all = calloc((size_t)threads, sizeof *all);
	if (!all) return -operating_system;
	int started = 0, result = 0;
	for (; started < threads; started++) {
		struct thread *t = &all[started];
		t->common = &c;
		t->calls = calls + (size_t)started * (size_t)k;
		if (pthread_create(&t->id, NULL, work, t) != 0) {
			result = operating_system;
			atomic_store(&c.go, -1);
			break;
		}
	}
	int64_t end = 0;
	for (int i = 0; i < started; i++) {
		pthread_join(all[i].id, NULL);
		if (result == 0) result = all[i].result;
		if (all[i].end > end) end = all[i].end;
	}
	free(all);
	return result != 0 ? -(int64_t)result : end - c.begin;
}
