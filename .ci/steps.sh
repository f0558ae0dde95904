# shellcheck shell=bash disable=SC2154 # tmp comes from .ci/run
# Helpers of .ci/run: steps, each with its time and its output in one piece, and
# lanes of steps that run at the same time. Sourced, not run; wants $tmp.

lanes=()

# elapsed prints the seconds since a clock reading in microseconds.
elapsed() {
	local d=$(((${EPOCHREALTIME/[^0-9]/} - $1) / 100000))
	printf '%d.%d s' $((d / 10)) $((d % 10))
}

# step NAME COMMAND... runs a command or function. Its output appears when it has
# ended, below a line with its name and duration, so that the output of lanes does
# not mix. The first step that fails ends the run. With $only, a regular
# expression, steps whose names do not match are left out.
step() {
	local name=$1 start=${EPOCHREALTIME/[^0-9]/} log rc=0 verdict=ok
	shift
	[[ $name =~ ${only:-} ]] || return 0
	log=$tmp/log/${name//[^a-zA-Z0-9]/-}
	printf '%s\n' "$name" >"$log.running"
	# In the background, because "wait" lets a signal through at once, and because
	# errexit would be off in a function called as "f || rc=$?".
	(
		set -e
		"$@"
	) >"$log" 2>&1 &
	wait "$!" || rc=$?
	rm "$log.running"
	((rc == 0)) || verdict="FAILED with exit status $rc"
	{
		flock 9
		printf '== %s: %s, %s\n' "$name" "$verdict" "$(elapsed "$start")"
		sed 's/^/   /' "$log"
	} 9>"$tmp/output.lock"
	((rc == 0)) || exit 1
	: >"$log.passed"
}

# together LANE... runs functions of steps at the same time. When one of them
# fails, the others are stopped.
together() {
	local lane
	set -m # a process group for each, so that it can be stopped as a whole
	for lane in "$@"; do
		"$lane" &
		lanes+=("$!")
	done
	set +m
	for lane in "$@"; do
		wait -n || exit 1
	done
	lanes=()
}

# finish runs at the end, however it came: it stops what is still running, and
# shows the output of steps that a signal, such as the time limit's, cut short.
finish() {
	local rc=$? lane running
	trap - EXIT TERM INT
	for lane in "${lanes[@]}"; do
		kill -- "-$lane" 2>/dev/null || true
	done
	if ((rc > 1)); then
		for running in "$tmp"/log/*.running; do
			[[ -e $running ]] || continue
			printf '== %s: cut short\n' "$(<"$running")"
			sed 's/^/   /' "${running%.running}"
		done
	fi
	rm -rf "$tmp"
	exit "$rc"
}

# steps_passed prints how many steps passed.
steps_passed() {
	local passed=("$tmp"/log/*.passed)
	echo "${#passed[@]}"
}
