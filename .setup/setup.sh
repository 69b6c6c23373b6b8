# shellcheck shell=bash
# Builds a fresh checkout in four steps: installs packages, configures, builds StarPU and the kernels at
# the same time, and runs ninja for the rest.
# Sourced by ./nnlua, tests/run and .ci/run, which call `locked prepare TARGET...`.
#
# Every step but ninja writes a stamp with its inputs and is skipped while they stay the same: a start
# with nothing to do calls neither apt nor dpkg. All files made here are in .deps/ and the build
# folder; deleting both is always safe.
#
# Settings, all optional: NNLUA_BUILD_DIR (the build folder), NN_CUDA=OFF (ignore an installed CUDA),
# NN_CUDA=ON (make machine code for GPUs even if there is no driver), CUDA_HOME, STARPU_TARBALL (a StarPU
# source archive on disk), JOBS.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
deps=$root/.deps
build=${NNLUA_BUILD_DIR:-$root/build}
case $build in /*) ;; *) build=$PWD/$build ;; esac
jobs=${JOBS:-$(nproc)}
announced= # `yes` after the line about compiling

# shellcheck source=SCRIPTDIR/packages.sh
. "$root/.setup/packages.sh"
# shellcheck source=SCRIPTDIR/starpu.sh
. "$root/.setup/starpu.sh"

say() { printf 'nnlua: %s\n' "$*" >&2; }

die() {
    say "$@"
    exit 1
}

# locked COMMAND...: runs it while no other set-up runs in this checkout. The program that starts
# later must not inherit the lock's descriptor, or a long training run would hold the lock. The file
# is not empty while its holder builds; a start with nothing to build holds it only briefly.
# shellcheck disable=SC2094
locked() {
    local told=
    mkdir -p "$deps/log"
    trap 'say "interrupted; the next start continues from here"; exit 130' INT
    {
        until flock -w 1 9; do
            [ $? = 1 ] || die "cannot lock $deps/lock; does its file system support flock(2)?"
            [ -s "$deps/lock" ] || continue
            [ -n "$told" ] || say "waiting for another nnlua that is building in $root"
            told=yes
        done
        : >"$deps/lock"
        "$@"
    } 9>>"$deps/lock" </dev/null
    trap - INT
}

# stage_failed WHAT LOG ADVICE: prints the compiler's first errors, or the end of the log, and exits.
stage_failed() {
    grep -m 8 -A 4 -E '(^|[: ])(fatal )?error: ' "$2" >&2 || tail -n 20 "$2" >&2
    say "$1 failed; the full log is in $2"
    die "$3"
}

# stage WHAT LOG ADVICE COMMAND...: runs a slow command and writes its output to LOG.
# The subshell is a statement of its own because bash ignores `set -e` inside any `if` or `||`.
stage() {
    local what=$1 log=$2 advice=$3 status
    shift 3
    say "$what; log in ${log#"$root/"}"
    echo "$what" >"$deps/lock"
    set +e
    (
        set -e
        "$@"
    ) >"$log" 2>&1
    status=$?
    set -e
    [ $status = 0 ] || stage_failed "${what%%,*}" "$log" "$advice"
}

# Sets cuda_home to the CUDA toolkit, or to nothing. nvcc is often installed outside PATH. Sets gpus to
# what the CUDA kernels are compiled for; empty: the default of CMakeLists.txt. Without a driver it is PTX
# alone, in half the time: a driver makes machine code of it.
find_cuda() {
    cuda_home='' gpus=''
    [ "${NN_CUDA:-AUTO}" != OFF ] || return 0
    local nvcc
    for nvcc in "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "$(command -v nvcc)" /usr/local/cuda/bin/nvcc; do
        if [ -x "$nvcc" ]; then
            cuda_home=${nvcc%/bin/nvcc}
            [ "${NN_CUDA:-AUTO}" = ON ] || has_driver || gpus=80-virtual
            return 0
        fi
    done
    [ "${NN_CUDA:-AUTO}" != ON ] || die "NN_CUDA=ON, but there is no nvcc; set CUDA_HOME to a CUDA toolkit"
}

has_driver() { [ -e /dev/nvidiactl ] || [[ $(/sbin/ldconfig -p 2>/dev/null) == *libcuda.so.1\ * ]]; }

# prepare TARGET...: builds targets in $build, and all they need. ranks=ON installs MPI and builds what
# several ranks need; later builds keep that until StarPU changes. tests=ON implies it and adds the C++
# tests to the build; sanitize=address builds with the address and undefined-behaviour sanitizers, sanitize=thread
# with the thread sanitizer, both without CUDA and MPI and with a StarPU that checks its assertions.
prepare() {
    local tests=${tests:-OFF} sanitize=${sanitize:-OFF} ranks=${ranks:-OFF} kind=fast
    [ "$tests" = OFF ] || ranks=ON
    [ "$sanitize" = OFF ] || ranks=OFF kind=check
    [ "$sanitize" != thread ] || kind=thread
    find_cuda
    [ "$sanitize" = OFF ] || cuda_home='' gpus=''
    ensure_packages build
    [ "$tests" = OFF ] || ensure_packages tests
    [ "$ranks" = OFF ] || ensure_packages ranks
    find_starpu $kind
    find_ranks
    [ -z "$starpu_missing" ] || get_starpu
    configure "$tests" "$sanitize"
    [ -z "$starpu_missing" ] || make_starpu_and_kernels $kind
    [ "$ranks_made_for" = OFF ] || ensure_ranks
    compile "$@"
}

# Builds StarPU, and meanwhile the kernels, which do not use it: StarPU's configure script keeps only one
# core busy. The kernels' build is a process group of its own, so that one signal ends all of it.
make_starpu_and_kernels() {
    local kernels
    set -m
    (
        trap 'exit 130' INT # instead of reporting that ninja failed
        compile all_kernels
    ) &
    set +m
    kernels=$!
    announced=yes
    # shellcheck disable=SC2064  # this process, not a later one
    trap "kill -INT -- -$kernels 2>/dev/null; wait" EXIT
    make_starpu "$1"
    wait "$kernels" || exit 1
    trap - EXIT
}

# Configures if the checkout moved, or CUDA or StarPU changed. A build with tests also serves callers
# that need none, so that they do not reconfigure in turns. StarPU may still be missing.
configure() {
    local tests=$1 ranks=${ranks_made_for##*mpi=} have=
    local for="root=$root starpu=$starpu_made_for cuda=$cuda_home sanitize=$2"
    [ ! -f "$build/.configured" ] || have=$(<"$build/.configured")
    [[ $have != "tests=ON "*" $for" ]] || tests=ON
    [ "$have" != "tests=$tests ranks=$ranks gpus=$gpus $for" ] || return 0
    mkdir -p "$build"
    [[ $have == *" $for" ]] || rm -rf "$build/CMakeCache.txt" "$build/CMakeFiles"
    local args=(-S "$root" -B "$build" -G Ninja -DNN_TESTS="$tests" -DNN_SANITIZE="$2" -DNN_RANKS=ON
        -DNN_STARPU="$starpu_prefix" -DNN_STARPU_MADE_FOR="${starpu_prefix:+$starpu_made_for}" -U 'MPI_*')
    if [ "$ranks" = OFF ]; then
        args+=(-DNN_RANKS=OFF)
        rm -f "$build/libnnlua_mpi.so"
    fi
    if [ -n "$cuda_home" ]; then
        args+=(-DNN_CUDA=AUTO -DCMAKE_CUDA_COMPILER="$cuda_home/bin/nvcc")
        if [ -n "$gpus" ]; then
            args+=(-DCMAKE_CUDA_ARCHITECTURES="$gpus")
        else
            args+=(-U CMAKE_CUDA_ARCHITECTURES)
        fi
    else
        args+=(-DNN_CUDA=OFF)
    fi
    stage "configuring ${build##*/}/" "$deps/log/configure.log" \
        "if a package was removed since the first start, delete $deps/packages.* and start again" \
        cmake "${args[@]}"
    printf '%s' "tests=$tests ranks=$ranks gpus=$gpus $for" >"$build/.configured"
}

# Runs ninja: prints nothing if all is up to date, a counter on a terminal, one line elsewhere.
compile() {
    local log=$deps/log/${build##*/}.log
    if ! NINJA_STATUS='[%f/%t] ' ninja -C "$build" -j "$jobs" "$@" 2>&1 | tee "$log" | show_progress; then
        stage_failed "compiling" "$log" \
            "this is an error in the sources or the compiler; to start afresh, delete $build"
    fi
}

show_progress() {
    local line shown=
    while IFS= read -r line; do
        case $line in '['*'] Building '* | '['*'] Linking '*) ;; *) continue ;; esac
        [ -n "$shown" ] || echo compiling >"$deps/lock"
        if [ -t 2 ]; then
            printf '\rnnlua: compiling %s ' "${line%%]*}]" >&2
        elif [ -z "$shown$announced" ]; then
            say "compiling into ${build##*/}/; log in .deps/log/${build##*/}.log"
        fi
        shown=1
    done
    [ -z "$shown" ] || [ ! -t 2 ] || printf '\r%30s\r' '' >&2
}
