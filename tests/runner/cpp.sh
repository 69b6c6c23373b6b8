# shellcheck shell=bash disable=SC2154,SC2034  # sourced by tests/run
# The C++ tests: each in a process of its own; with --quick all but the sweeps, in one process per
# job.

# The names of the C++ tests, read from the sources, so that nothing need be built.
cpp_names() {
    cat tests/cpp/*.cc | tr '\n' ' ' | grep -oE 'TEST_CASE\(( *"([^"\\]|\\.)*")+' |
        sed -E 's/^TEST_CASE\( *"//; s/" +"//g; s/"$//'
    sed -n 's/^ *add_test(NAME "\(.*\)"$/\1/p' CMakeLists.txt
}

# failed_cpp_tests FILE: the output of each test that failed, from a report in JUnit's format
failed_cpp_tests() {
    sed -n '/<testcase .*status="fail"/,/<\/testcase>/p' "$1" |
        sed -e 's/.*<testcase name="\([^"]*\)".*/== \1/' -e '/^\t* *<\(properties\|failure\)/d' \
            -e '/<\/testcase>/d' -e 's/<[^>]*>//g' \
            -e "s/&quot;/\"/g; s/&apos;/'/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g"
}

cpp_tests() {
    local start=$SECONDS
    if [ -n "$quick" ]; then quick_cpp_tests; else all_cpp_tests; fi
    echo "C++ tests $((SECONDS - start))" >>"$times"
}

all_cpp_tests() {
    local junit=$build/tests.xml attribute counts=()
    rm -f "$junit"
    ctest --test-dir "$build" -j "$jobs_at_once" --output-on-failure --output-junit "$junit" ${pattern:+-R "$pattern"} || true
    # ctest's output varies; the first line of its report always has the counts
    for attribute in tests failures skipped; do
        counts+=("$(sed -n "s/.*\b$attribute=\"\([0-9]*\)\".*/\1/p" "$junit" 2>/dev/null | sed -n 1p)")
    done
    [ ! -f "$junit" ] || failed_cpp_tests "$junit" >>"$failures"
    if [ -z "${counts[2]}" ]; then
        echo "ctest wrote no report to $junit"
        failed=$((failed + 1))
    elif [ -z "$pattern" ] && [ "${counts[0]}" = 0 ]; then
        echo "no C++ test was found; does $build/nnlua_tests --list-tests work?"
        failed=$((failed + 1))
    else
        tally "$((counts[0] - counts[1] - counts[2])) passed, ${counts[1]} failed, ${counts[2]} skipped"
    fi
}

# The tests without the tag [sweep], in as many processes as tests may run at a time.
quick_cpp_tests() {
    local names=$build/quick-tests part pid status
    # this option makes Catch exit with the number of tests
    "$build/nnlua_tests" --list-test-names-only '~[sweep]' >"$names.all" || true
    if [ ! -s "$names.all" ]; then
        echo "no C++ test was found; does $build/nnlua_tests --list-tests work?"
        failed=$((failed + 1))
        return
    fi
    grep -E -- "${pattern:-.}" "$names.all" >"$names" || return 0
    rm -f "$names".[0-9]*
    split -e -n "r/$jobs_at_once" -d "$names" "$names."
    for part in "$names".[0-9]*; do
        sed -i "s|,|\\\\,|g" "$part" # Catch ends a name at a comma
        in_background "$part" "$part.log" "$build/nnlua_tests" --input-file "$part"
    done
    for pid in "${!running[@]}"; do
        part=${running[$pid]} status=0
        wait "$pid" || status=$?
        unset "running[$pid]"
        count_quick_tests "$part.log" "$(wc -l <"$part")" "$status"
    done
}

# count_quick_tests LOG N STATUS: adds the results of a process that ran N tests
count_quick_tests() {
    local broken=0 skips
    skips=$(grep -c '^ *skipped: ' "$1" || true)
    if [ "$3" != 0 ]; then
        grep -v '^Filters: ' "$1" || true
        printf '== C++ tests\n%s\n' "$(tail -n 40 "$1" | grep -v '^Filters: ')" >>"$failures"
        broken=$(sed -n 's/^test cases: .*| *\([0-9]*\) failed.*/\1/p' "$1" | tail -n 1)
        # A process that ended before its summary counts as one failure.
        [ -n "$broken" ] || { failed=$((failed + 1)) && return; }
    fi
    tally "$(($2 - broken - skips)) passed, $broken failed, $skips skipped"
}
