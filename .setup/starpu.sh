# shellcheck shell=bash disable=SC2034,SC2154,SC2164  # sourced by setup.sh; the build runs under set -e
# StarPU, the engine's task runtime: found on the system, or built into .deps/.
#
# The version is pinned, since StarPU changes its ABI between point releases. The source is the first
# available of: STARPU_TARBALL, an earlier download, Debian's source package, upstream's release. It
# must have one of two known checksums. StarPU-MPI, for several ranks, is a library of its own in
# .deps/starpu-ranks/, built from the same source against the existing StarPU, which does not change.

starpu_version=1.4.10
# The version of this file's patches and build options; raise it to make every checkout rebuild.
starpu_recipe=5
starpu_sha256=(
    # Debian's starpu_1.4.10+dfsg.orig.tar.gz, as in its signed archive index
    6b3bb9ec0d79f937882148b2da09ae6cb0ad4d1e83a104be45723dd70eba99c3
    # upstream's starpu-1.4.10.tar.gz, as in the Spack package of StarPU's maintainers
    8f35f59c337ba109e5ef5fb4f6331b4845d524921e184fcc89f2ecac60faaf03
)
starpu_url=https://files.inria.fr/starpu/starpu-$starpu_version/starpu-$starpu_version.tar.gz
starpu_archive=$deps/source/starpu-$starpu_version.tar.gz

# find_starpu fast|check|thread: sets starpu_prefix (empty: the system's), starpu_made_for, and
# starpu_missing to `yes` if it must be built. `check` and `thread` are for tests, without CUDA, and
# the system's StarPU cannot replace them: `check` has StarPU's assertions, which catch misuse of its
# API; `thread` is built with ThreadSanitizer, which must see StarPU's locks and atomic operations.
find_starpu() {
    starpu_missing=
    starpu_prefix=$deps/starpu
    [ "$1" = fast ] || starpu_prefix=$deps/starpu-$1
    starpu_made_for="$starpu_version $1 recipe=$starpu_recipe cuda=${cuda_home:+$(readlink -f "$cuda_home")}"
    [ ! -f "$starpu_prefix/made_for" ] || [ "$(<"$starpu_prefix/made_for")" != "$starpu_made_for" ] || return 0
    if [ "$1" = fast ] && [ "$ranks" = OFF ] && [ -z "${STARPU_TARBALL:-}" ] && system_starpu; then
        rm -f "$starpu_prefix/made_for" # CMake would prefer it to the system's
        starpu_prefix=
        starpu_made_for=system-$(pkg-config --modversion starpu-1.4)
        return 0
    fi
    [[ $deps != *[[:space:]]* ]] ||
        die "StarPU cannot be built in a folder with a space in its name; move the checkout: $root"
    starpu_missing=yes
}

# Sets ranks_made_for: the configuration that StarPU-MPI for several ranks is built for; OFF if this build
# has none. It is built when ranks=ON asks for it, and then used by all later builds.
find_ranks() {
    ranks_made_for=OFF
    local mpicc made_for
    mpicc=$(command -v mpicc) && command -v mpirun >/dev/null && [ "$starpu_prefix" = "$deps/starpu" ] || return 0
    made_for="$starpu_made_for mpi=${mpicc%/mpicc}"
    if [ "$ranks" = ON ] || [ "$(cat "$deps/starpu-ranks/made_for" 2>/dev/null)" = "$made_for" ]; then
        ranks_made_for=$made_for
    fi
}

# build_into TARGET WHAT LOG ADVICE COMMAND...: runs a stage whose command gets one more argument, a new
# folder, and makes there the folder `made`, which becomes TARGET.
build_into() {
    local target=$1 work
    shift
    rm -rf "$deps"/tmp.* # left by an interrupted build
    work=$(mktemp -d "$deps/tmp.XXXXXX")
    stage "$@" "$work"
    rm -rf "$target"
    mv "$work/made" "$target"
    rm -rf "$work"
}

# make_starpu fast|check|thread: builds StarPU into $starpu_prefix.
make_starpu() {
    build_into "$starpu_prefix" "building StarPU $starpu_version, about a minute" "$deps/log/starpu.log" \
        "if CUDA causes this, NN_CUDA=OFF builds without it" build_starpu "$1"
}

# Builds StarPU-MPI into .deps/starpu-ranks/ if it is missing.
ensure_ranks() {
    [ "$(cat "$deps/starpu-ranks/made_for" 2>/dev/null)" != "$ranks_made_for" ] || return 0
    get_starpu
    build_into "$deps/starpu-ranks" "building StarPU-MPI $starpu_version" "$deps/log/starpu-ranks.log" \
        "check that mpicc compiles and links a program" build_ranks
}

# Checks that the system's StarPU is new enough, and supports CUDA if CUDA is installed. It is not used for
# several ranks, which need patches of StarPU-MPI that change the messages on all hosts.
system_starpu() {
    pkg-config --exists 'starpu-1.4 >= 1.4.8' 2>/dev/null || return 1
    local config buffers
    config=$(pkg-config --variable=includedir starpu-1.4)/starpu/1.4/starpu_config.h
    buffers=$(sed -n 's/^#define STARPU_NMAXBUFS \([0-9]*\).*/\1/p' "$config")
    [ "${buffers:-0}" -ge 16 ] || return 1 # max_handles in engine/graph/task.h
    [ -z "$cuda_home" ] || grep -q '#define STARPU_USE_CUDA 1' "$config"
}

known_starpu() {
    local sum
    sum=$(sha256sum <"$1")
    [[ " ${starpu_sha256[*]} " == *" ${sum%% *} "* ]]
}

# Copies or downloads a source archive with a known checksum to $starpu_archive.
get_starpu() {
    mkdir -p "${starpu_archive%/*}"
    if [ -n "${STARPU_TARBALL:-}" ]; then
        [ -r "$STARPU_TARBALL" ] || die "STARPU_TARBALL: cannot read $STARPU_TARBALL"
        known_starpu "$STARPU_TARBALL" ||
            die "STARPU_TARBALL: $STARPU_TARBALL is not StarPU $starpu_version: its sha256 is not one of ${starpu_sha256[*]}"
        cp "$STARPU_TARBALL" "$starpu_archive.part"
        mv "$starpu_archive.part" "$starpu_archive"
        return
    fi
    [ ! -f "$starpu_archive" ] || ! known_starpu "$starpu_archive" || return 0
    say "getting StarPU $starpu_version"
    starpu_from_debian >"$deps/log/starpu-debian.log" 2>&1 || starpu_from_upstream ||
        die "could not get StarPU $starpu_version from Debian's archive (see .deps/log/starpu-debian.log)" \
            "or from $starpu_url. Copy that file here and run again with STARPU_TARBALL=/its/path"
}

# Gets Debian's source package from the mirror that this machine's apt uses; apt checks signatures.
# Private folders keep apt's own lists and sources unchanged. An expired index of a mirror that lags
# is fine, since the source's checksum is known.
# && chains the steps because callers test the result, which turns `set -e` off.
starpu_from_debian() {
    has apt-get || return 1
    local work suite status=1
    work=$(mktemp -d "$deps/tmp.XXXXXX") # apt refuses relative folders
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    local private=(-o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o Acquire::Languages=none
        -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any -o Acquire::Check-Valid-Until=false)
    local mirror
    mirror=$(debian_mirror)
    # Without package lists, read them into the private folder, which needs no root.
    [ -n "$mirror" ] || { apt-get "${private[@]}" -q update && mirror=$(debian_mirror "${private[@]}"); }
    if [ -n "$mirror" ]; then
        private+=(-o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null)
        for suite in forky sid; do
            echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" \
                >"$work/sources.list"
            if apt-get "${private[@]}" -q update && debian_source "$work" "${private[@]}"; then
                status=0
                break
            fi
        done
    fi
    rm -rf "$work"
    return $status
}

# debian_mirror [APT OPTION...]: the address of the first Debian archive in apt's configuration
debian_mirror() {
    # shellcheck disable=SC2016  # apt expands $(REPO_URI)
    apt-get "$@" indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' \
        "Codename: $(. /etc/os-release && echo "${VERSION_CODENAME:-}")" | sed -n 1p
}

# debian_source FOLDER APT OPTION...: downloads any Debian revision of the pinned version
debian_source() {
    local folder=$1 version
    shift
    version=$(apt-cache "$@" showsrc --only-source starpu | sed -n "s/^Version: \($starpu_version+dfsg-.*\)/\1/p" | sed -n 1p)
    [ -n "$version" ] && (cd "$folder" && apt-get "$@" -q source --download-only "starpu=$version") &&
        known_starpu "$folder/starpu_$starpu_version+dfsg.orig.tar.gz" &&
        mv "$folder/starpu_$starpu_version+dfsg.orig.tar.gz" "$starpu_archive"
}

starpu_from_upstream() {
    say "not in Debian's archive; trying ${starpu_url}"
    ensure_packages fetch
    curl -fsSL --retry 2 --connect-timeout 20 -o "$starpu_archive.part" "$starpu_url" || return 1
    if ! known_starpu "$starpu_archive.part"; then
        rm -f "$starpu_archive.part"
        say "the file from $starpu_url does not have the known sha256; deleted it"
        return 1
    fi
    mv "$starpu_archive.part" "$starpu_archive"
}

# build_starpu fast|check|thread FOLDER: builds in FOLDER, so that an interrupted build never looks
# finished, and leaves the result in FOLDER/made.
build_starpu() {
    local kind=$1 work=$2
    mkdir "$work/src" "$work/obj"
    tar -xzf "$starpu_archive" --strip-components=1 -C "$work/src"
    cd "$work/src"
    local flags='-O1 -g' install=install-strip args=(--prefix="$starpu_prefix" --enable-maxcpus=64
        --enable-maxnumanodes=1 --enable-maxbuffers=16 --enable-blas-lib=none --disable-opencl --disable-hip
        --disable-max-fpga --disable-fxt --disable-papi --disable-glpk --disable-hdf5 --disable-valgrind
        --disable-build-doc --disable-build-examples --disable-build-tests --disable-starpufft
        --disable-socl --disable-starpupy --disable-starpurm --disable-openmp --disable-openmp-llvm
        --disable-fortran --disable-julia --disable-static --disable-mpi)
    # Removes StarPU's warning about sample measurements, which a relocated library cannot find.
    replace_in '/_perf_model_add_dir(STARPU_SAMPLING_DIR/d' src/core/perfmodel/perfmodel.c
    case $kind in
    fast) args+=(--enable-fast) flags='-O3 -g0' ;;
    thread) # Keeps the names of functions, which reports and tests/tsan.supp need.
        args+=(--enable-fast) flags='-O1 -g1 -fno-omit-frame-pointer -fsanitize=thread' install=install
        # StarPU's spin locks are plain words between memory barriers, which the sanitizer does not
        # understand; it knows those of the C library.
        replace_in 's/defined(STARPU_LINUX_SYS) && defined(STARPU_HAVE_XCHG)/0/' \
            include/starpu_thread.h src/common/thread.h src/common/thread.c
        ;;
    esac
    # The memory of a data handle is quadratic in the number of memory nodes: RAM, a disk, 8 GPUs.
    if [ -n "$cuda_home" ]; then
        args+=(--enable-maxnodes=12 --enable-maxcudadev=8)
        patch_starpu_for_cuda
    else
        args+=(--enable-maxnodes=2 --disable-cuda)
    fi
    cd "$work/obj"
    # Debian's sh is faster than the bash that configure and libtool would choose.
    CONFIG_SHELL=/bin/sh /bin/sh ../src/configure "${args[@]}" CFLAGS="$flags -Wno-deprecated-declarations" CXXFLAGS="$flags"
    # Only the library and its headers, not StarPU's tools.
    make -C src -j"$jobs"
    make -C src DESTDIR="$work/root" "$install"
    make DESTDIR="$work/root" install-exec-am install-data-am
    local made=$work/root$starpu_prefix
    [ -z "$cuda_home" ] || grep -q '#define STARPU_USE_CUDA 1' "$made/include/starpu/1.4/starpu_config.h"
    # A prefix relative to the .pc file lets users move the checkout.
    sed -i "s|$starpu_prefix|\${pcfiledir}/../..|g" "$made"/lib/pkgconfig/*.pc
    rm -f "$made"/lib/*.la
    install -D -m 644 src/common/config.h "$made/private/common/config.h" # for build_ranks
    printf '%s' "$starpu_made_for" >"$made/made_for"
    mv "$made" "$work/made"
}

# build_ranks FOLDER: builds StarPU-MPI in FOLDER/made, against the StarPU in $starpu_prefix and with its
# configuration. MPI changes nothing in StarPU but a few messages, so one libstarpu serves both.
build_ranks() {
    local made=$1/made name=libstarpumpi-1.4.so flags
    mkdir -p "$1/src" "$made/lib"
    tar -xzf "$starpu_archive" --strip-components=1 -C "$1/src"
    cd "$1/src"
    let_starpu_mpi_sleep
    let_starpu_mpi_order_sends
    flags=$(PKG_CONFIG_PATH=$starpu_prefix/lib/pkgconfig pkg-config --cflags starpu-1.4)
    # shellcheck disable=SC2046,SC2086  # file names without spaces; several flags
    printf '%s\n' $(find mpi/src -name '*.c' ! -path '*failure_tolerance*' ! -name starpu_mpi_fxt.c) |
        xargs -P "$jobs" -n 4 mpicc -c -O3 -fPIC -Wno-deprecated-declarations -D_GNU_SOURCE -DBUILDING_STARPU \
            -DSTARPU_USE_MPI -DSTARPU_USE_MPI_MPI -DSTARPU_HAVE_MPI_COMM_CREATE_GROUP -DSTARPU_HAVE_MPI_EXT \
            -I"$starpu_prefix/private" $flags -Impi/include -Impi/src -Isrc
    mpicc -shared -s -o "$made/lib/$name.3" -Wl,-soname,$name.3 ./*.o -L"$starpu_prefix/lib" -lstarpu-1.4
    ln -s $name.3 "$made/lib/$name"
    cp -r mpi/include "$made/include"
    printf '%s' "$ranks_made_for" >"$made/made_for"
}

# replace_in SED-SCRIPT FILE...: sed that fails if it changes nothing.
replace_in() {
    local script=$1 file
    shift
    for file in "$@"; do
        sed -i.before "$script" "$file"
        if cmp -s "$file.before" "$file"; then
            echo "the patch does not fit $file: $script"
            return 1
        fi
    done
}

# While a message is under way, the thread of StarPU-MPI polls without a pause and takes a core from the
# workers. If STARPU_MPI_IDLE_SLEEP is set, it now waits that many microseconds after 10 rounds without
# progress; a new local request wakes it. It waits up to 4 times as long after more such rounds, and up
# to 16 times as long if MPI moves no data. Call it in the source folder.
let_starpu_mpi_sleep() {
    local thread=mpi/src/mpi/starpu_mpi_mpi.c
    replace_in '/^static int newer_requests;/a\
static long idle_sleep;  /* ns */\
static int idle_rounds;  /* since a request made progress */' $thread
    # progress: a request is handled, an envelope arrives, a transfer ends
    replace_in 's/^\t*req = _starpu_mpi_req_list_pop_back(&ready_recv_requests);/&\n\t\t\tidle_rounds = 0;/
        s/^\t*req = _starpu_mpi_req_prio_list_pop_back_highest(&ready_send_requests);/&\n\t\t\tidle_rounds = 0;/
        s/^\t*next_req = _starpu_mpi_req_list_next(req);/\t\t\tidle_rounds = 0;\n&/
        s/^\t*_STARPU_MPI_COMM_FROM_DEBUG(envelope, .*/\t\t\t\tidle_rounds = 0;\n&/' $thread
    replace_in '/We release the lock to avoid monopolizing it while polling/i\
		if (idle_sleep > 0 \&\& _starpu_mpi_req_list_empty(\&ready_recv_requests) \&\&\
		    (_starpu_mpi_req_prio_list_empty(\&ready_send_requests) || ndetached_send_requests == ndetached_send_requests_max) \&\&\
		    ++idle_rounds > 10)\
		{\
			struct timespec until;\
			int longer = (idle_rounds - 10) / 4, most = _starpu_mpi_req_list_empty(\&detached_requests) ? 4 : 2;\
			clock_gettime(CLOCK_REALTIME, \&until);\
			until.tv_nsec += idle_sleep << (longer < most ? longer : most);\
			until.tv_sec += until.tv_nsec / 1000000000;\
			until.tv_nsec %= 1000000000;\
			pthread_cond_timedwait(\&progress_cond, \&progress_mutex, \&until);\
			continue;\
		}' $thread
    replace_in 's/^\tnready_process = starpu_getenv_number_default.*/&\
	idle_sleep = 1000L * starpu_getenv_number_default("STARPU_MPI_IDLE_SLEEP", 0);/' $thread
    # the default slack of timers, 50 us, would double the pause
    replace_in 's/^\tint envelope_request_submitted = 0;/\tprctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);\n&/
        1i #include <sys/prctl.h>\n#include <time.h>' $thread
}

# A synchronous send begins as soon as its receiver asks for the data, so all that are ready share the
# link and end at about the same time. Now one begins only while less than 1 MiB is under way, and the
# others wait in the order of their priorities. MPI matches messages of one tag in their order, so each
# gets a tag of its own, which the receiver chooses. Call it in the source folder.
let_starpu_mpi_order_sends() {
    local thread=mpi/src/mpi/starpu_mpi_mpi.c
    replace_in 's/^[[:space:]]*int prio;/&\n\tint sync_tag;\n\tlong sync_bytes;/' mpi/src/starpu_mpi_private.h
    # Only the thread of StarPU-MPI uses these.
    replace_in '/^static int newer_requests;/a\
static struct _starpu_mpi_req_prio_list ready_sync_data;\
static long sync_bytes;  /* under way */\
static unsigned next_sync_tag;' $thread
    replace_in 's/^\tnready_process = starpu_getenv_number_default.*/&\
	_starpu_mpi_req_prio_list_init(\&ready_sync_data);/' $thread
    replace_in 's/^\t*_envelope->mode = _STARPU_MPI_ENVELOPE_SYNC_READY;/&\
		req->sync_tag = (1 << 20) + (int) (next_sync_tag++ % (1 << 20));\
		_envelope->size = req->sync_tag;/
        /MPI_Issend(\|MPI_Irecv(/s/_STARPU_MPI_TAG_SYNC_DATA/req->sync_tag/
        s/^\t*_starpu_mpi_isend_data_func(_sync_req);/\t\t\t\t\t_sync_req->sync_tag = (int) envelope->size;\
					_starpu_mpi_req_prio_list_push_front(\&ready_sync_data, _sync_req);/
        s/^\t*_starpu_mpi_req_prio_list_deinit(&ready_send_requests);/&\n\t_starpu_mpi_req_prio_list_deinit(\&ready_sync_data);/
        s/^\t*unsigned block = /&_starpu_mpi_req_prio_list_empty(\&ready_sync_data) \&\& /
        s/^\t*_starpu_mpi_req_list_erase(&detached_requests, req);/&\
			if (req->request_type == SEND_REQ \&\& req->sync) sync_bytes -= req->sync_bytes;/' $thread
    replace_in '/test whether there are some terminated "detached request"/i\
		while (!_starpu_mpi_req_prio_list_empty(\&ready_sync_data) \&\& sync_bytes < 1 << 20)\
		{\
			struct _starpu_mpi_req *req = _starpu_mpi_req_prio_list_pop_back_highest(\&ready_sync_data);\
			req->sync_bytes = req->detached ? (long) starpu_data_get_size(req->data_handle) : 0;\
			sync_bytes += req->sync_bytes;\
			STARPU_PTHREAD_MUTEX_UNLOCK(\&progress_mutex);\
			_starpu_mpi_isend_data_func(req);\
			STARPU_PTHREAD_MUTEX_LOCK(\&progress_mutex);\
		}' $thread
}

# Patches StarPU 1.4.10 for current CUDA toolkits. Call it in the source folder.
patch_starpu_for_cuda() {
    local drivers=src/drivers/cuda
    args+=(--enable-cuda --with-cuda-dir="$cuda_home" LDFLAGS="-Wl,-rpath,$cuda_home/lib64"
        ac_cv_lib_cublasLt_cublasLtCreate=no ac_cv_lib_cusparse_cusparseCreate=no
        ac_cv_lib_cusolver_cusolverDnCreate=no)
    export PATH=$cuda_home/bin:$PATH
    # CUDA 13 dropped cudaDeviceProp::computeMode
    replace_in 's/if (props\[devid\]\.computeMode == cudaComputeModeExclusive)/int computeMode = 0;\
	if (cudaDeviceGetAttribute(\&computeMode, cudaDevAttrComputeMode, devid) == cudaSuccess \&\& computeMode == cudaComputeModeExclusive)/' \
        $drivers/driver_cuda.c $drivers/driver_cuda1.c
    # Depend on cudart alone: starpu_cublas_init and the like become empty (the engine has its own
    # handles), and starpu.h no longer includes cuSPARSE's headers with their warnings.
    replace_in 's/#ifdef STARPU_USE_CUDA/#if 0/' $drivers/starpu_cublas.c $drivers/starpu_cublas_v2.c \
        include/starpu_cusparse.h
    replace_in 's/-lcudart -lcublas"/-lcudart"/' configure
    # A tile that a task only writes was marked as prefetched for it and never unmarked, so that it was not
    # evicted for later prefetches. Fixed after 1.4.12: c0e4dbf6f, 4ddb248e7 with d7c7c98a5, 502a40fcb.
    replace_in 's/task->prefetched && local_replicate->initialized &&/task->prefetched \&\&/
        /^\t*!(mode & (STARPU_SCRATCH|STARPU_REDUX)) &&$/{N;s/ &&\n.*(mode & STARPU_R))$/)/}' src/datawizard/coherency.c
    # StarPU only asserts that a kernel succeeded, and --enable-fast removes this assertion: it would
    # wait for a failed kernel for ever. Report the failure instead.
    replace_in 's/STARPU_ASSERT_MSG(cures == cudaErrorNotReady, "CUDA error on task/if (cures != cudaErrorNotReady) STARPU_CUDA_REPORT_ERROR(cures);\
			&/' $drivers/driver_cuda.c
}
