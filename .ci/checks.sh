# shellcheck shell=bash disable=SC2154 # tmp comes from .ci/run
# The steps of .ci/run that are more than one command. Sourced, not run; wants
# $tmp.

fail() {
	printf '%s\n' "$@"
	return 1
}

# sources prints the files of the working tree that are, or may become, git's.
sources() {
	git ls-files -z --cached --others --exclude-standard -- "$@" |
		while IFS= read -r -d '' file; do
			[[ ! -f $file ]] || printf '%s\0' "$file"
		done
}

formatted() {
	local files
	files=$(sources '*.go' | xargs -0 gofmt -l)
	[[ -z $files ]] || fail 'gofmt would change:' "$files"
}

# generated runs the generators in a copy, so that the check changes nothing and
# works on a tree that has changes.
generated() {
	mkdir "$tmp/before" "$tmp/after"
	sources | tar --null -T - -c | tar -x -C "$tmp/before"
	cp -a "$tmp/before/." "$tmp/after"
	(cd "$tmp/after" && go generate ./...)
	(cd "$tmp" && diff -r -u before after) || fail 'go generate changes what is committed'
}

vet_platforms() {
	GOOS=windows GOARCH=amd64 go vet ./...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet ./...
	go vet -tags nocuda ./...
	CGO_ENABLED=0 go vet -tags purecuda_syscalln ./...
}

# bench_peers: the programs that the benchmark compares with, which are no part of the
# module. They cannot run here.
bench_peers() {
	(cd bench/cgo && CGO_ENABLED=1 go vet . && CGO_ENABLED=1 go build -o "$tmp/cgo-peer" .)
	if ! command -v python3 >/dev/null; then
		echo 'there is no python3 to look at bench/peers/*.py with'
		return
	fi
	python3 -c '
import sys
for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as f:
        compile(f.read(), name, "exec")
' bench/peers/*.py
}

# build_command OS ARCH [FLAG...] builds everything and keeps the command.
build_command() {
	local name=$1-$2${4:+-$4}
	export GOOS=$1 GOARCH=$2 CGO_ENABLED=0
	go build "${@:3}" ./...
	go build "${@:3}" -o "$tmp/bin/$name" ./cmd/purecuda
	stat -c '%s bytes' "$tmp/bin/$name"
}

# build_packages builds the packages where there is no CUDA: programs that import
# them must still compile.
build_packages() {
	local platform packages
	mapfile -t packages < <(go list ./... | grep -v /cmd/)
	for platform in linux/386 freebsd/amd64 js/wasm; do
		echo "$platform"
		GOOS=${platform%/*} GOARCH=${platform#*/} CGO_ENABLED=0 go build "${packages[@]}"
	done
}

# no_compiler runs the tests as a user's machine may be: Go, git, the modules, and
# nothing else. A busy machine may take several times as long as an idle one: the
# limit only ends tests that hang.
no_compiler() {
	local tool
	mkdir "$tmp/path"
	for tool in go git; do
		ln -s "$(command -v "$tool")" "$tmp/path"
	done
	PATH=$tmp/path GOPROXY=off GOTOOLCHAIN=local CGO_ENABLED=0 "$(command -v timeout)" 300 go test -count=1 ./... ||
		fail 'a failure, or more than 300 s'
}

# oldest_go tests with the oldest Go that go.mod allows.
oldest_go() {
	local GOTOOLCHAIN
	GOTOOLCHAIN=go$(go list -m -f '{{.GoVersion}}')
	export GOTOOLCHAIN
	go version
	go build ./...
	go test -count=1 . ./driver ./driver/drivertest ./loader ./internal/ccall ./internal/native ./internal/proc ./internal/rules ./cudatest ./ipc
}

# imports: which package may import which, as the test of the root package has it.
imports() {
	go test -count=1 -v -run '^TestArrows' . >"$tmp/imports" || fail "$(<"$tmp/imports")"
	grep -- '--- ' "$tmp/imports"
	! grep -q -- '--- SKIP' "$tmp/imports" || fail 'skipped'
}

# fuzz gives every fuzz target of the module 10,000 inputs. It is a number because
# a duration ends now and then in "context deadline exceeded" (go.dev/issue/75804).
# Inputs that reach new code are kept as they come: to make them smaller would take
# the whole time.
fuzz() {
	local names=() word rest
	go test -list '^Fuzz' ./... >"$tmp/fuzz"
	while read -r word rest; do
		case $word in
		Fuzz*) names+=("$word") ;;
		ok)
			for word in "${names[@]}"; do
				go test -run '^$' -fuzz "^$word\$" -fuzztime 10000x -fuzzminimizetime 1x -parallel 1 "${rest%%[[:space:]]*}"
			done
			names=()
			;;
		esac
	done <"$tmp/fuzz"
	grep -q '^Fuzz' "$tmp/fuzz" || fail 'no fuzz target found'
}

# simulated runs a demo on the simulated GPU by COMMAND..., and sees that it says so.
simulated() {
	timeout 10 "$@" demo -driver sim | tee "$tmp/demo"
	grep -qi simulated "$tmp/demo" || fail 'the output does not say that the GPU is simulated'
}

demo_simulated() {
	go build -o "$tmp/bin/purecuda" ./cmd/purecuda # so that the limit is the demo's own
	simulated go run ./cmd/purecuda
}

bench_simulated() {
	timeout 10 "$tmp/bin/linux-amd64" bench -driver sim -rounds 5
}

# needed_libraries sees that the programs depend on the C library alone: CUDA is
# found at run time or not at all.
needed_libraries() {
	local arch needed=() library
	for arch in amd64 arm64; do
		mapfile -t needed < <(LC_ALL=C readelf -d "$tmp/bin/linux-$arch" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
		echo "$arch: ${needed[*]}"
		((${#needed[@]} > 0)) || fail 'none, or unreadable'
		for library in "${needed[@]}"; do
			[[ $library =~ ^(libc|libdl|libpthread|ld-linux[-a-z0-9_]*)\.so\.[0-9]+$ ]] || fail "$library must not be needed"
		done
	done
	# README.md shows what readelf prints, without its columns.
	LC_ALL=C readelf -ld "$tmp/bin/linux-amd64" | sed -nE 's/^ *(0x[0-9a-f]+ )? *(\[Requesting program|\(NEEDED\))/    \2/p' |
		sed -E 's/(\(NEEDED\)) +/\1  /' >"$tmp/dynamic"
	grep -E '^    (\[Requesting program|\(NEEDED\))' README.md | diff -u - "$tmp/dynamic" ||
		fail 'README.md shows something else than readelf -ld'
}

static_binary() {
	LC_ALL=C readelf -l -d "$tmp/bin/linux-amd64-nocuda" >"$tmp/headers"
	! grep -E 'INTERP|NEEDED' "$tmp/headers" || fail 'the program is not static'
}

empty_root() {
	mkdir "$tmp/root"
	cp "$tmp/bin/linux-amd64-nocuda" "$tmp/root/purecuda"
	simulated chroot "$tmp/root" /purecuda
}

# info_without_gpu: a machine with a driver but without a device.
info_without_gpu() {
	local library rc=0 want
	library=$(driver_library)
	LD_LIBRARY_PATH=$(dirname "$library") "$tmp/bin/linux-amd64" info -driver cuda >"$tmp/info" 2>&1 || rc=$?
	cat "$tmp/info"
	((rc == 1)) || fail "exit status $rc, not 1"
	# What is to be named: that there is no device, the library, its version, and
	# what it lacks.
	for want in 'no.*device' "$(readlink -f "$library")" 'CUDA 12\.2' cuEventElapsedTime_v2; do
		grep -qi -- "$want" "$tmp/info" || fail "not said: $want"
	done
}

loader_on_driver() {
	PURECUDA_TEST_LIBRARY=$(driver_library) # a failure counts here, but not before a command
	export PURECUDA_TEST_LIBRARY
	go test -count=1 -v -run Real ./loader
}

qemu=(qemu-aarch64-static -L /usr/aarch64-linux-gnu)

# test_arm64 [FLAG...] sees that no test is skipped but those on a real driver.
test_arm64() {
	local rc=0
	GOARCH=arm64 CGO_ENABLED=0 CC=aarch64-linux-gnu-gcc LOADER_TEST_EXEC="${qemu[*]}" \
		go test -count=1 -v -exec "${qemu[*]}" "$@" ./internal/ccall ./loader >"$tmp/arm64" || rc=$?
	((rc == 0)) || fail "$(<"$tmp/arm64")"
	grep -E -- '^ok |--- SKIP' "$tmp/arm64"
	! grep -- '--- SKIP' "$tmp/arm64" | grep -v ': TestReal' || fail 'skipped'
	grep -q -- '^--- PASS: TestSystemLibrary ' "$tmp/arm64" || fail 'the tests did not run'
}

test_arm64_syscalln() { test_arm64 -tags purecuda_syscalln; }

demo_arm64() { simulated "${qemu[@]}" "$tmp/bin/linux-arm64"; }
