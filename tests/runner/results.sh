# shellcheck shell=bash disable=SC2154  # sourced by tests/run
# Counts results, and shows at the end the seconds and what failed. $failures has the output of all
# that failed; $times has a line `FOLDER FILE SECONDS` for each Lua file, and one for all C++ tests.

passed=0 failed=0 skipped=0
summary='^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$'

declare -A running=() # what runs in the background, by process

# in_background NAME LOG COMMAND...: job control gives the command a process group of its own, in
# which SIGINT is not ignored.
in_background() {
    local name=$1 log=$2
    shift 2
    set -m
    "$@" >"$log" 2>&1 </dev/null &
    set +m
    running[$!]=$name
}

# What runs when this script ends, as after Ctrl-C, ends with it.
stop_running() {
    local pid
    for pid in "${!running[@]}"; do
        kill -TERM -- "-$pid" 2>/dev/null || true
    done
}
trap stop_running EXIT

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
