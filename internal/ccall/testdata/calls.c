// The C side of the tests: functions of the shapes that the driver's have.
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <string.h>
#include <time.h>

typedef uint64_t u64;
typedef struct { unsigned char bytes[64]; } struct64;

// What the last call of args0..args6, narrow or by_value was given.
u64 seen[12];

int args0(void) { return 1000; }
int args1(u64 a) { seen[0] = a; return 1001; }
int args2(u64 a, u64 b) { seen[0] = a; seen[1] = b; return 1002; }
int args3(u64 a, u64 b, u64 c) { seen[0] = a; seen[1] = b; seen[2] = c; return 1003; }
int args4(u64 a, u64 b, u64 c, u64 d) { args3(a, b, c); seen[3] = d; return 1004; }
int args5(u64 a, u64 b, u64 c, u64 d, u64 e) { args4(a, b, c, d); seen[4] = e; return 1005; }
int args6(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f) { args5(a, b, c, d, e); seen[5] = f; return 1006; }

int args12(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i, u64 j, u64 k, u64 l) {
	args6(a, b, c, d, e, f);
	seen[6] = g; seen[7] = h; seen[8] = i; seen[9] = j; seen[10] = k; seen[11] = l;
	return 1012;
}
// How far the stack is from a multiple of 16 where the ABI wants one.
int aligned(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i, u64 j, u64 k, u64 l) {
	(void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h, (void)i, (void)j, (void)k, (void)l;
	return (int)((uintptr_t)__builtin_frame_address(0) % 16);
}
int by_address(u64 n, const u64 *in) { seen[0] = in[1]; return (int)(n + in[0] + in[2]); }

int narrow(int32_t a, uint8_t b, uint16_t c, uint32_t d) {
	seen[0] = (u64)(int64_t)a; seen[1] = b; seen[2] = c; seen[3] = d;
	return -1;
}
int answer(int32_t r) { return r; }
int get_seen(u64 *out, int i) { *out = seen[i]; return 0; }

int out_first(u64 *out, u64 in) { *out = ~in; return 1; }
int out_last(u64 in, u64 *out) { *out = ~in; return 2; }
int out_two(int32_t *a, u64 *b) { *a = -7; *b = 0x123456789abcdef0; return 3; }
int out_two_last(u64 in, u64 *a, u64 *b) { *a = in + 1; *b = in + 2; return (int)in; }
int out_float(float *ms, u64 a, u64 b) { *ms = (float)a / (float)b; return 4; }
int in_out(int32_t *mode) { int32_t old = *mode; *mode = -old; return old; }

int fill(char *buf, int n, int seed) {
	for (int i = 0; i < n; i++) buf[i] = (char)(seed + i);
	return n;
}
int text(char *buf, int n) { strncpy(buf, "a C string", n); return 0; }
int length(const char *s) { return (int)strlen(s); }

int by_value(u64 *out, struct64 s) { memcpy(out, s.bytes, 8); return s.bytes[63]; }
int by_value_flags(u64 *out, struct64 s, uint32_t flags) {
	*out = flags;
	int sum = 0;
	for (int i = 0; i < 64; i++) sum += s.bytes[i] * (i + 1);
	return sum;
}

// Long enough that the garbage collector runs meanwhile.
int slow_out(u64 in, u64 *a, u64 *b) {
	struct timespec t = {0, 200000};
	nanosleep(&t, 0);
	return out_two_last(in, a, b);
}

// A scope: what was called inside, in order, and what the next pushes and pops answer.
u64 calls[8];
int ncalls, push_answer, pop_answer;

static int note(u64 call, int answer) { calls[ncalls++] = call; return answer; }
int push(u64 context) { return note(context, push_answer); }
int pop(u64 *context) { *context = 0x5c5c5c5c5c5c5c5c; return note(1, pop_answer); }
int inside(int answer, u64 *out) {
	if (out) *out = 77;
	return note((uintptr_t)__builtin_frame_address(0) % 16 + 100, answer);
}
int inside12(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i, u64 j, u64 k, u64 l) {
	(void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h, (void)i, (void)j, (void)k;
	return note((uintptr_t)__builtin_frame_address(0) % 16 + 100, (int)(a + l));
}
// The first one finds 2 and leaves 40, the second finds that.
int exchange(int32_t *mode) { u64 found = (u64)*mode; *mode = 40; return note(found, 0); }
int exchange_fails(int32_t *mode) { return note((u64)*mode, 3); }
int begin_scope(int push_result, int pop_result) {
	ncalls = 0, push_answer = push_result, pop_answer = pop_result;
	return 0;
}
int out_nothing(u64 a) { (void)a; return 0; }
int get_call(u64 *out, int i) { *out = i < ncalls ? calls[i] : 0; return 0; }
