# shellcheck shell=bash disable=SC2154  # sourced by tests/run
# Counts results, and shows at the end the seconds and what failed. $failures holds the output of
# failed tests; $times has a line `FOLDER FILE SECONDS` for each Lua file, and one for all C++ tests.

passed=0 failed=0 skipped=0
summary='^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$'

declare -A running=() # names of background commands, by process

# in_background NAME LOG COMMAND...: job control gives the command a process group of its own, in
# which SIGINT is not ignored. The subshell ends with a status even if a signal kills the command:
# `wait -n` would forget a process that a signal ended meanwhile.
in_background() {
    local name=$1 log=$2
    shift 2
    trap stop_running EXIT
    set -m
    ("$@" || exit $?) >"$log" 2>&1 </dev/null &
    set +m
    running[$!]=$name
}

# Stops all background commands when this script ends, for example after Ctrl-C.
stop_running() {
    local pid
    for pid in "${!running[@]}"; do
        kill -TERM -- "-$pid" 2>/dev/null || true
    done
}

# tally LINE: adds a summary line to the totals; false where LINE is not one
tally() {
    [[ $1 =~ $summary ]] || return 1
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
    skipped=$((skipped + BASH_REMATCH[3]))
}

# Shows the seconds of each folder and of its files, slowest first.
show_seconds() {
    [ "$(wc -l <"$times")" -gt 1 ] || return 0
    printf '\nseconds, %s at a time:\n' "$jobs_at_once"
    sort -k 3,3nr "$times" | awk '
        { total[$1] += $3; files[$1] = files[$1] ", " $2 " " $3 }
        END { for (group in total) printf "%6d  %s: %s\n", total[group], group, substr(files[group], 3) }' |
        sort -rn
}

# Shows the beginning of what failed, and where the rest is.
repeat_failures() {
    [ -s "$failures" ] || return 0
    printf '\nfailed (all of it: %s):\n' "$failures"
    head -n 60 "$failures" | cut -c 1-300
}
