"""What the guest boots: Debian's kernel and an initramfs of programs, from the user's cache."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stagecoach.hw.cache import kept
from tools.interop import kernel
from tools.interop.errors import InteropError
from tools.interop.packages import Versions, fetch, find_file, run, with_dependencies

PERFTEST = "4.5+0.17"
"""The only version that `stagecoach perftest` speaks."""

PACKAGES = (
    "busybox-static",
    "ibverbs-providers",
    "iproute2",
    "nfs-common",
    "nfs-kernel-server",
    "perftest",
    "rdmacm-utils",
    "rpcbind",
)
PROGRAMS = (
    "exportfs",
    "ib_read_bw",
    "ib_read_lat",
    "ib_send_bw",
    "ib_send_lat",
    "ib_write_bw",
    "ib_write_lat",
    "ip",
    "mount.nfs",
    "rdma",
    "rdma_client",
    "rdma_server",
    "rpc.mountd",
    "rpc.nfsd",
    "rpcbind",
    "rping",
    "ucmatose",
)
_LIBRARY_FOLDERS = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
_PROGRAM_FOLDERS = ("bin", "sbin", "usr/bin", "usr/sbin")
_PROVIDER = "libibverbs/libsiw-rdmav34.so"
# libc loads it when a thread is cancelled.
_LOADED_LATER = ("libgcc_s.so.1",)
_LOADER = "lib64/ld-linux-x86-64.so.2"
_SETTINGS = ("netconfig", "protocols", "rpc", "services", "libibverbs.d/siw.driver")
_EMPTY = ("dev", "mnt", "proc", "run", "sys", "tmp", "usr", "var/lib/nfs/sm")
_INIT = Path(__file__).with_name("init.sh")
_NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")


@dataclass(frozen=True)
class Image:
    """What QEMU is given, and the versions of what is in it: `versions` for people."""

    kernel: Path
    initramfs: Path
    versions: Versions


def image(tell: Callable[[str], None]) -> Image:
    """The image of the newest packages, from the cache or new; `tell` is told of each step.

    Raises `InteropError`, `CacheError`.
    """
    tell("ask apt for versions")
    kernel_packages = kernel.versions()
    packages = with_dependencies(PACKAGES)
    if not packages["perftest"].startswith(PERFTEST):
        raise InteropError(
            f"perftest is {packages['perftest']} (expected {PERFTEST}, of Debian 12)"
        )

    def make_kernel(folder: Path) -> None:
        tell("build siw.ko, from 230 MB of packages")
        kernel.build(kernel_packages, folder)

    vmlinuz = kept("guest", key_of(kernel_packages, kernel.__file__), "vmlinuz", make_kernel)

    def make_initramfs(folder: Path) -> None:
        tell("build the initramfs")
        build(packages, vmlinuz.parent / "modules", folder)

    key = key_of(kernel_packages | packages, kernel.__file__, __file__, str(_INIT))
    initramfs = kept("guest", key, "initramfs", make_initramfs)
    return Image(vmlinuz, initramfs, shown(kernel_packages, packages))


def key_of(versions: Versions, *sources: str) -> str:
    """A key of the cache: of versions, and of the files by which it is made."""
    digest = hashlib.sha256(json.dumps(versions, sort_keys=True).encode())
    for source in sources:
        digest.update(Path(source).read_bytes())
    return digest.hexdigest()[:24]


def shown(kernel_packages: Versions, packages: Versions) -> Versions:
    """The versions that people ask for."""
    linux = kernel_packages[f"linux-image-{kernel.release_of(kernel_packages)}"]
    return {
        "linux": linux,
        "siw": f"of linux-source {linux}",
        "rdma-core": packages["rdmacm-utils"],
        "perftest": packages["perftest"],
        "nfs-utils": packages["nfs-common"],
    }


def build(packages: Versions, modules: Path, folder: Path) -> None:
    """Makes `initramfs` in a folder, with the modules of a tree. Raises `InteropError`."""
    root, staged = folder / "root", folder / "staged"
    root.mkdir()
    fetch(packages, root)
    shutil.copytree(modules, staged)
    _copy_programs(root, staged)
    for name in _SETTINGS:
        (staged / "etc" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / "etc" / name, staged / "etc" / name)
    for name in _EMPTY:
        (staged / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib"):
        (staged / "usr" / name).symlink_to(f"../{name}")
    shutil.copy(_INIT, staged / "init")
    (staged / "init").chmod(0o755)
    archive = folder / "unfinished"
    busybox = root / "bin/busybox"
    pack = f"find . | sort | '{busybox}' cpio -o -H newc > '{archive}'"
    run("sh", "-e", "-c", pack, folder=staged)
    for made in (root, staged):
        shutil.rmtree(made)
    archive.rename(folder / "initramfs")


def _copy_programs(root: Path, staged: Path) -> None:
    """Copies `PROGRAMS` and all libraries that they load."""
    (staged / "bin").mkdir()
    shutil.copy(root / "bin/busybox", staged / "bin")
    provider = find_file(root, _LIBRARY_FOLDERS, _PROVIDER)
    todo = [provider]
    for name in PROGRAMS:
        todo.append(path := find_file(root, _PROGRAM_FOLDERS, name))
        shutil.copy(path, staged / "bin" / name)
    libraries = staged / _LIBRARY_FOLDERS[0]
    (libraries / _PROVIDER).parent.mkdir(parents=True)
    shutil.copy(provider, libraries / _PROVIDER)
    names = list(_LOADED_LATER)
    while todo or names:
        while todo:
            names += parse_needed(run("readelf", "-d", str(todo.pop().resolve())))
        name = names.pop()
        if not (libraries / name).exists():
            todo.append(path := find_file(root, _LIBRARY_FOLDERS, name))
            shutil.copy(path, libraries / name)
    (staged / _LOADER).parent.mkdir()
    shutil.copy(find_file(root, _LIBRARY_FOLDERS, Path(_LOADER).name), staged / _LOADER)


def parse_needed(printed: str) -> list[str]:
    """The libraries that a program loads, of what `readelf -d` prints."""
    return _NEEDED.findall(printed)
