// The head of a driver library whose functions note that they were called, and in
// which state of the thread, instead of what they were given.
#include <stdint.h>

typedef int CUresult;

static void *contexts[8];
static int depth, mode;
static unsigned calls; // all of them; the last 16 are kept
static uint64_t seen[16][3];
static CUresult answers[256];

static CUresult note(int function) {
	uint64_t *call = seen[calls++ % 16];
	call[0] = (uint64_t)function;
	call[1] = depth ? (uint64_t)(uintptr_t)contexts[depth - 1] : 0;
	call[2] = (uint64_t)mode;
	return answers[function];
}

int fake_begin(void) { calls = depth = mode = 0; return 0; }
int fake_answer(int function, int result) { answers[function] = result; return 0; }
int fake_calls(void) { return (int)calls; }
int fake_get(uint64_t *out, int call, int word) { *out = seen[call][word]; return 0; }

#define NOTE(function, symbol) CUresult symbol(void) { return note(function); }
#define PUSH(function, symbol) CUresult symbol(void *context) { \
	CUresult r = note(function); \
	if (!r) contexts[depth++] = context; \
	return r; \
}
#define POP(function, symbol) CUresult symbol(void **context) { \
	*context = contexts[--depth]; \
	return note(function); \
}
#define EXCHANGE(function, symbol) CUresult symbol(int *to) { \
	CUresult r = note(function); \
	if (r) return r; \
	int was = mode; \
	mode = *to, *to = was; \
	return 0; \
}
