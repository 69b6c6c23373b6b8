# shellcheck shell=bash disable=SC2154,SC2034  # sourced by setup.sh
# The packages that building needs, by Debian's names.

packages_build=(build-essential cmake ninja-build pkg-config git libhwloc-dev libopenblas0 libdnnl2
    libluajit-5.1-dev lua-cjson libdeflate-dev libpng-dev libjpeg-dev)
packages_tests=(catch2 tmux file iproute2)
packages_ranks=(libopenmpi-dev openmpi-bin) # several ranks (nnlua --ranks) only
packages_lint=(clang-format lua-check)
packages_fetch=(ca-certificates curl)

has() { command -v "$1" >/dev/null; }

# Looks for the program or library itself and not for Debian's package: other distributions, conda
# and a cluster's modules provide it too.
present() {
    case $1 in
    build-essential) has g++ && has make ;;
    ninja-build) has ninja ;;
    lua-check) has luacheck ;;
    libopenmpi-dev) has mpicc && mpicc --showme:version | grep 'Open MPI' ;;
    openmpi-bin) has mpirun ;;
    libhwloc-dev) pkg-config --exists hwloc ;;
    libluajit-5.1-dev) pkg-config --exists luajit ;;
    libdeflate-dev) pkg-config --exists libdeflate ;;
    libpng-dev) pkg-config --exists libpng ;;
    libjpeg-dev) pkg-config --exists libjpeg ;;
    libopenblas0) PATH=$PATH:/sbin ldconfig -p | grep 'libopenblas\.so' ;;
    libdnnl2) PATH=$PATH:/sbin ldconfig -p | grep 'libdnnl\.so' ;;
    lua-cjson) compgen -G '/usr/lib/*/lua/5.1/cjson.so' || compgen -G '/usr/local/lib/lua/5.1/cjson.so' ;;
    catch2) [ -f /usr/include/catch2/catch.hpp ] ;;
    iproute2) PATH=$PATH:/sbin has ip && PATH=$PATH:/sbin has tc ;;
    ca-certificates) [ -s /etc/ssl/certs/ca-certificates.crt ] ;;
    *) has "$1" ;;
    esac >/dev/null 2>&1
}

# ensure_packages build|tests|ranks|lint|fetch
ensure_packages() {
    local -n wanted=packages_$1
    local stamp=$deps/packages.$1 package missing=()
    [ ! -f "$stamp" ] || [ "$(<"$stamp")" != "${wanted[*]}" ] || return 0
    for package in "${wanted[@]}"; do
        present "$package" || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
    printf '%s' "${wanted[*]}" >"$stamp"
}

install_packages() {
    has apt-get || die "packages are missing; install them with your package manager (Debian's names): $*"
    local install="apt-get update && apt-get install -y --no-install-recommends $*" as_root=()
    if [ "$(id -u)" != 0 ]; then
        has sudo || die "packages are missing and there is no sudo; run:  su -c '$install'"
        # sudo can ask for a password only on a terminal
        sudo -n true 2>/dev/null || { : </dev/tty; } 2>/dev/null ||
            die "packages are missing and sudo needs a password; run:  sudo sh -c '$install'"
        as_root=(sudo)
    fi
    as_root+=(env DEBIAN_FRONTEND=noninteractive)
    local advice="install them by hand:  sudo sh -c '$install'"
    local wait=(-o DPkg::Lock::Timeout=300)
    stage "reading apt's package lists" "$deps/log/apt-update.log" "$advice" \
        "${as_root[@]}" apt-get "${wait[@]}" -q update
    stage "installing $*" "$deps/log/apt-install.log" "$advice" \
        "${as_root[@]}" apt-get "${wait[@]}" -qy install --no-install-recommends "$@"
}
