# shellcheck shell=bash disable=SC2154  # sourced by tests/run
# Tests under ThreadSanitizer, for `tests/run --sanitize=thread`.
#
# A test may start other processes and ignore how they end, so every process writes its reports to
# files of its own, and a report fails the test that ran then.
#
# OpenBLAS, LuaJIT and other libraries are not instrumented, so their accesses and atomic operations
# are invisible. LuaJIT runs on the main thread only, and kernels/blas.cc announces the operands of
# OpenBLAS's products. The option ignore_noninstrumented_modules would be wrong: it also ignores the
# waits on condition variables inside libstdc++, and two threads would seem to hold one lock.

tsan_folder=$build/tsan
tsan_race='#include <thread>
int shared[1000];  // one race may escape, when both threads look at the same moment
int main() {
    std::thread other([] { for (int& value : shared) value = 1; });
    for (int& value : shared) value = 2;
    other.join();
}'

# Sets tsan_missing to the reason why this machine cannot run these tests, or to nothing. Checks that
# a data race is reported. "$@": the arguments of tests/run.
set_up_tsan() {
    local probe=$tsan_folder/probe output reports
    mkdir -p "$tsan_folder"
    rm -f "$tsan_folder"/report.*
    export TSAN_OPTIONS="log_path='$tsan_folder/report':suppressions='$root/tests/tsan.supp':history_size=7"
    export NNLUA_ISA=baseline NNLUA_CPUS=${NNLUA_CPUS:-2}
    tsan_missing=
    if ! output=$(g++ -fsanitize=thread -g -x c++ -pthread -o "$probe" - <<<"$tsan_race" 2>&1); then
        tsan_missing="the compiler cannot build for it: $(head -n 1 <<<"$output")"
        return
    fi
    if output=$("$probe" 2>&1); then die "ThreadSanitizer does not report a data race"; fi
    reports=$(take_tsan_reports) || true
    [[ $reports != *"data race"* ]] || return 0
    # If Linux randomizes more bits of addresses than ThreadSanitizer supports, disable that.
    if [ -z "${NNLUA_FIXED_ADDRESSES:-}" ] && setarch "$(uname -m)" -R true 2>/dev/null; then
        NNLUA_FIXED_ADDRESSES=1 exec setarch "$(uname -m)" -R "$root/tests/run" "$@"
    fi
    tsan_missing="it does not start: $(grep -m 1 . <<<"$reports$output" || true)"
}

# Prints the reports since the last call; false if there are none.
take_tsan_reports() {
    local files=("$tsan_folder"/report.*)
    [ -e "${files[0]}" ] || return 1
    cat "${files[@]}"
    rm -f "${files[@]}"
}

# "$@": the arguments of tests/run
tsan_tests() {
    locked ensure_packages build
    set_up_tsan "$@"
    if [ -n "$tsan_missing" ]; then
        echo "skipped: ThreadSanitizer cannot be used here: $tsan_missing"
        skipped=$((skipped + 1))
    elif [ -n "$pattern${TSAN_ALL:-}" ]; then
        all_tests
    else
        tests=OFF locked prepare nnlua
        lua_test tests/lua/system/workers.lua 'two workers' # kernels, programs, generation
        lua_test tests/lua/library/checkpoint.lua
        lua_test tests/lua/models/generate.lua
    fi
}
