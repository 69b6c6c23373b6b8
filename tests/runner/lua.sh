# shellcheck shell=bash disable=SC2154,SC2034  # sourced by tests/run
# The Lua tests: several files at a time, then those that run alone, one after another.

logs=$build/lua-tests
declare -A began=() # start of each file, by process

# failed_cases FILE: the failed cases in the output of a Lua file, each with its message; the last
# lines if no case failed, as in a crash
failed_cases() {
    awk '/^(ok|skipped|[0-9]+ passed)/ { failed = 0 } /^FAILED/ { failed = any = 1 } failed
         END { exit !any }' "$1" || tail -n 20 "$1"
}

log_of() { echo "$logs/${1#tests/lua/}.log"; }

# start_file FILE [PART OF A NAME]...: runs these cases of one file, or all, in the background
start_file() {
    local log
    log=$(log_of "$1")
    mkdir -p "${log%/*}"
    # --foreground: all that the file starts stays in the group of the job
    in_background "$1" "$log" timeout --foreground -k 10 "${NNLUA_TEST_TIMEOUT:-600}" "$build/nnlua" "$@"
    began[$!]=$SECONDS
}

# Waits for a file to end, counts its results, and shows its output if a case failed.
finish_file() {
    local pid status=0 file log last before=$failed seconds
    wait -n -p pid "${!running[@]}" || status=$?
    kill -KILL -- "-$pid" 2>/dev/null || true # what a crashed or late file left
    file=${running[$pid]} seconds=$((SECONDS - began[$pid]))
    unset "running[$pid]"
    log=$(log_of "$file")
    last=$(tail -n 1 "$log")
    if ! tally "$last"; then
        last="no summary line; exit status $status"
        failed=$((failed + 1))
    elif [ $status != 0 ] && [ "$failed" = "$before" ]; then
        last="$last, but the exit status is $status"
        failed=$((failed + 1))
    fi
    if [ "$sanitize" = thread ] && take_tsan_reports >>"$log"; then
        last="$last; ThreadSanitizer reports a data race"
        [ "$failed" != "$before" ] || failed=$((failed + 1))
    fi
    if [ "$failed" != "$before" ]; then
        cat "$log"
        printf '== %s: %s\n%s\n' "$file" "$last" "$(failed_cases "$log")" >>"$failures"
    fi
    printf '%-40s %s (%d s)\n' "$file" "$last" "$seconds"
    echo "$seconds" >"$log.seconds"
    file=${file#tests/lua/}
    echo "${file%%/*} $(basename "$file" .lua) $seconds" >>"$times"
}

lua_test() {
    start_file "$@"
    finish_file
}

# slowest_first FILE...: in the order of the seconds that they took last; new files come first
slowest_first() {
    local file
    for file in "$@"; do
        echo "$(cat "$(log_of "$file").seconds" 2>/dev/null || echo 1000) $file"
    done | sort -k 1,1nr -s | cut -d ' ' -f 2-
}

lua_tests() {
    local file alone=() shared=()
    [ $# != 0 ] || return 0
    for file in $(slowest_first "$@"); do
        if grep -q '^-- Runs alone' "$file"; then alone+=("$file"); else shared+=("$file"); fi
    done
    for file in "${shared[@]}"; do
        [ ${#running[@]} -lt "$jobs_at_once" ] || finish_file
        start_file "$file"
    done
    while [ ${#running[@]} != 0 ]; do finish_file; done
    for file in "${alone[@]}"; do lua_test "$file"; done
}
