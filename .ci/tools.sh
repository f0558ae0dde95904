# shellcheck shell=bash disable=SC2154 # tmp comes from .ci/run
# The tools and the driver library that .ci/run needs beyond Go, gcc and git, for
# Debian on amd64. Sourced, not run; wants $tmp.
#
# All of it comes from the machine's own Debian sources, widened by the component
# that holds NVIDIA's driver. Lists and cache are kept apart in $tmp: the machine's
# own settings stay as they are.

own_apt() {
	DEBIAN_FRONTEND=noninteractive apt-get -q -y \
		-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$tmp/apt/sources" \
		-o Dir::State::Lists="$tmp/apt/lists" -o Dir::Cache="$tmp/apt/cache" \
		-o Acquire::Retries=3 -o Acquire::Languages=none -o APT::Sandbox::User=root \
		-o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=60 "$@"
}

# debian_sources writes the machine's Debian entries, of both forms that apt knows
# and no one else's, with the non-free components added.
debian_sources() {
	local codename files
	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mkdir -p "$tmp/apt/sources" "$tmp/apt/lists/partial" "$tmp/apt/cache/archives/partial"

	mapfile -t files < <(find /etc/apt/sources.list /etc/apt/sources.list.d -name '*.list' -type f 2>/dev/null)
	((${#files[@]} == 0)) || sed -nE "s/#.*//
		/^deb\s.*\s(stable|$codename)(-updates|-security|\/updates)?\s(.*\s)?main(\s|\$)/s/\$/ non-free non-free-firmware/p" \
		"${files[@]}" >"$tmp/apt/sources/debian.list"

	mapfile -t files < <(find /etc/apt/sources.list.d -name '*.sources' -type f 2>/dev/null)
	((${#files[@]} == 0)) || for file in "${files[@]}"; do
		awk -v RS= -v ORS='\n\n' -v suite="(stable|$codename)(-updates|-security)?([ \t\n]|\$)" '
			"\n" $0 ~ "\nTypes:[^\n]*deb" && "\n" $0 ~ "\nSuites:[ \t]*" suite && "\n" $0 ~ "\nComponents:[^\n]*main" &&
			"\n" $0 !~ "\nEnabled:[ \t]*no" {
				gsub(/\nComponents:[^\n]*/, "& non-free non-free-firmware")
				print
			}' "$file"
	done >"$tmp/apt/sources/debian.sources"

	if [[ -z $(cat "$tmp"/apt/sources/*) ]]; then
		echo "no entry of Debian $codename in /etc/apt/sources.list or sources.list.d"
		return 1
	fi
}

apt_lists() {
	debian_sources
	# Without this apt would go on with half of the lists after an error.
	own_apt -qq -o APT::Update::Error-Mode=any update
}

# install_tools installs the packages that are missing.
install_tools() {
	local missing=() package
	for package in binutils qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
		wine64 gcc-mingw-w64-x86-64-win32; do
		dpkg-query -W -f '${Status} ${Package} ${Version}\n' "$package" 2>/dev/null |
			grep '^install ok installed' || missing+=("$package")
	done
	((${#missing[@]} == 0)) || own_apt install --no-install-recommends "${missing[@]}"
}

# fetch_driver unpacks NVIDIA's driver library. It is not installed: the other
# steps run as on a machine without a driver.
fetch_driver() {
	mkdir -p "$tmp/driver"
	(cd "$tmp/driver" && own_apt download libcuda1)
	dpkg -x "$tmp"/driver/libcuda1_*.deb "$tmp/driver"
	driver_library
}

# driver_library prints the path of the unpacked library.
driver_library() {
	local found
	found=$(find "$tmp/driver" -name libcuda.so.1)
	[[ -n $found ]] && echo "$found"
}
