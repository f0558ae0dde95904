# shellcheck shell=bash
# The steps of .ci/run that run Windows programs, under Wine. Sourced, not run;
# wants $tmp.

wine=(env "WINEPREFIX=$tmp/wine" WINEDEBUG=-all timeout 120 /usr/lib/wine/wine64)

# test_windows runs the demo, and, on a driver library in System32 that answers as
# testdata/driver.c does, the loader and calls of every shape.
test_windows() {
	local system=$tmp/wine/drive_c/windows/system32 rc=0 test
	"${wine[@]}" wineboot --init
	# Go needs one function of a DLL that this Wine lacks.
	dll "$system/bcryptprimitives.dll" -ladvapi32 <<-'C'
		#include <windows.h>
		#include <ntsecapi.h>
		BOOL ProcessPrng(unsigned char *p, size_t n) { return RtlGenRandom(p, n); }
	C
	simulated "${wine[@]}" "$tmp/bin/windows-amd64"

	"${wine[@]}" "$tmp/bin/windows-amd64" info -driver cuda >"$tmp/info" 2>&1 || rc=$?
	cat "$tmp/info"
	((rc == 1)) || fail "exit status $rc without a driver, not 1"
	grep -q 'nvcuda.dll' "$tmp/info" || fail 'the error does not name nvcuda.dll'

	driver_source | dll "$system/nvcuda.dll"
	"${wine[@]}" "$tmp/bin/windows-amd64" info -driver cuda | tee "$tmp/info"
	grep -qi 'library:.*system32.nvcuda.dll' "$tmp/info" || fail 'nvcuda.dll in System32 was not opened'
	GOOS=windows CGO_ENABLED=0 go test -c -o "$tmp/bin/cuda.test.exe" .
	PURECUDA_TEST_C_LIBRARY='C:\windows\system32\nvcuda.dll' "${wine[@]}" "$tmp/bin/cuda.test.exe" \
		-test.v -test.run '^(TestHotCallsDoNotAllocate|TestHandleCrossesByValue)$' | tee "$tmp/calls"
	for test in TestHotCallsDoNotAllocate/library/record TestHandleCrossesByValue; do
		grep -q -- "--- PASS: $test " "$tmp/calls" || fail "$test did not run"
	done
}

# dll FILE [FLAG...] compiles C from standard input.
dll() {
	x86_64-w64-mingw32-gcc -shared -static-libgcc -O2 -Wl,--export-all-symbols -x c -o "$1" - "${@:2}"
}

# driver_source prints testdata/driver.c and the functions of the table that it
# leaves out.
driver_source() {
	local symbol
	cat testdata/driver.c
	sed -n 's/.*Symbol: "\([^"]*\)".*/\1/p' driver/zapi.go | while read -r symbol; do
		grep -q " $symbol(" testdata/driver.c || echo "CUresult $symbol(void) { return 0; }"
	done
}
