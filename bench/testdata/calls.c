// Functions for the loops to call. They count their calls and look at their
// arguments.
#include <stdatomic.h>
#include <stdint.h>

typedef uint64_t w;

static atomic_int made;

int count(void) { return made; }
int reset(void) { made = 0; return 0; }

static int is(int right) { made++; return right ? 0 : 1; }

#define A0 a == 0xf0e1d2c3b4a59601
int f0(void) { return is(1); }
int f1(w a) { return is(A0); }
int f2(w a, w b) { return is(A0 && b == 2); }
int f3(w a, w b, w c) { return is(A0 && b == 2 && c == 3); }
int f4(w a, w b, w c, w d) { return is(A0 && b == 2 && c == 3 && d == 4); }
int f5(w a, w b, w c, w d, w e) { return is(A0 && b == 2 && c == 3 && d == 4 && e == 5); }
int f6(w a, w b, w c, w d, w e, w f) { return is(A0 && b == 2 && c == 3 && d == 4 && e == 5 && f == 6); }
int f7(w a, w b, w c, w d, w e, w f, w g) { return is(A0 && b == 2 && c == 3 && d == 4 && e == 5 && f == 6 && g == 7); }
int f8(w a, w b, w c, w d, w e, w f, w g, w h) {
	return is(A0 && b == 2 && c == 3 && d == 4 && e == 5 && f == 6 && g == 7 && h == 8);
}
int f9(w a, w b, w c, w d, w e, w f, w g, w h, w i) {
	return is(A0 && b == 2 && c == 3 && d == 4 && e == 5 && f == 6 && g == 7 && h == 8 && i == 9);
}
int f10(w a, w b, w c, w d, w e, w f, w g, w h, w i, w j) {
	return is(A0 && b == 2 && c == 3 && d == 4 && e == 5 && f == 6 && g == 7 && h == 8 && i == 9 && j == 10);
}
int f11(w a, w b, w c, w d, w e, w f, w g, w h, w i, w j, w k) {
	return is(A0 && b == 2 && c == 3 && d == 4 && e == 5 && f == 6 && g == 7 && h == 8 && i == 9 && j == 10 && k == 11);
}

// An object that is made, used and destroyed.
static w object = 0xf0e1d2c3b4a50000;
int create(w *out, w flags) { *out = ++object; return is(flags == 2); }
int use(w o, w s) { return is(o == object && s == 7); }
int destroy(w o) { return is(o == object); }

// Fails when it is called for the limit-th time.
int fails(w limit) { return ++made == (int)limit ? 700 : 0; }

// Nobody else adds to *p, so nothing is lost if that is true.
int add(w *p) { *p += 1; return 0; }

int set_current(void *context) {
	made++;
	return context == (void *)0x10 ? 201 : 0;
}
