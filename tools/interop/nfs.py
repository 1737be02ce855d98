"""NFS version 3 over RDMA: the guest's kernel and `stagecoach nfs`, each as client and server."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.interop.guest import HOST
from tools.interop.job import Job, JobError
from tools.interop.lab import Lab

_MOUNT = "/mnt"
_LONG = "n" * 255
_COPIED = (0, 1, 4095, 65536, 1_000_003)
"""Bytes of the files that are copied to the kernel's server."""

FILES = (
    "head -c 0 /dev/zero > empty; test ! -s empty",
    "head -c 1 /dev/urandom > /tmp/f1; cp /tmp/f1 f1",
    "head -c 3 /dev/urandom > /tmp/f3; cp /tmp/f3 f3",
    "head -c 4095 /dev/urandom > /tmp/f4095; cp /tmp/f4095 f4095",
    "head -c 4096 /dev/urandom > /tmp/f4096; cp /tmp/f4096 f4096",
    "head -c 65537 /dev/urandom > /tmp/f65537; cp /tmp/f65537 f65537",
    "head -c 1500001 /dev/urandom > /tmp/f1500001; cp /tmp/f1500001 f1500001",
    "sync; echo 3 > /proc/sys/vm/drop_caches",
    "for n in 1 3 4095 4096 65537 1500001; do cmp /tmp/f$n f$n || exit 1; done",
    "dd if=/tmp/f4096 of=f65537 bs=4096 seek=3 conv=notrunc",
    "dd if=/tmp/f4096 of=/tmp/f65537 bs=4096 seek=3 conv=notrunc",
    "dd if=/tmp/f3 of=f4095 bs=1 seek=1000 conv=notrunc; dd if=/tmp/f3 of=/tmp/f4095 bs=1 "
    "seek=1000 conv=notrunc",
    "cat /tmp/f3 >> f4096; cat /tmp/f3 >> /tmp/f4096",
    "sync; echo 3 > /proc/sys/vm/drop_caches",
    "for n in 4095 4096 65537; do cmp /tmp/f$n f$n || exit 1; done",
    "rm f1 f3 && test ! -e f1",
)
"""Data: sizes, writes in the middle, appends, compared after the cache was dropped."""

NAMES = (
    "mkdir folder",
    "echo hello > folder/file",
    "ln folder/file folder/other && test $(stat -c %h folder/file) = 2",
    "ln -s folder/file link && test $(readlink link) = folder/file",
    "test $(cat link) = hello",
    "mv folder/other folder/moved && test ! -e folder/other",
    "echo new > folder/new && mv folder/new folder/moved && test $(cat folder/moved) = new",
    "test $(stat -c %h folder/file) = 1",
    f"echo long > {_LONG} && test $(cat {_LONG}) = long",
    f"mv {_LONG} folder/ && ls folder | grep -qx {_LONG}",
    f"! touch {_LONG}n",
    "mkdir folder/inner && ! rmdir folder",
    "mv folder/inner . && rmdir inner && test ! -e inner",
    "echo x > 'na me äöü' && test $(cat 'na me äöü') = x",
    "mkfifo fifo && test -p fifo",
    "rm -r folder link fifo 'na me äöü' && test ! -e folder",
)
"""Directories, hard and symbolic links, renames, names of 255 bytes."""

ENTRIES = (
    "mkdir many",
    "for n in $(seq 500); do : > many/entry-$n || exit 1; done",
    "test $(ls many | wc -l) = 500",
    "echo 3 > /proc/sys/vm/drop_caches",
    "test $(ls -l many | grep -c entry-) = 500",
    "seq 500 | sed s/^/entry-/ | sort > /tmp/wanted && ls many | sort | cmp - /tmp/wanted",
    "rm -r many && test ! -e many",
)
"""A directory with 500 entries."""

DIRECT = (
    "head -c 1048576 /dev/urandom > /tmp/direct",
    "dd if=/tmp/direct of=direct bs=65536 oflag=direct",
    "dd if=direct of=/tmp/back bs=131072 iflag=direct && cmp /tmp/direct /tmp/back",
    "dd if=/tmp/direct of=direct bs=4096 seek=5 count=3 skip=9 conv=notrunc oflag=direct",
    "dd if=/tmp/direct of=/tmp/direct2 bs=4096 && dd if=/tmp/direct of=/tmp/direct2 bs=4096 seek=5 "
    "count=3 skip=9 conv=notrunc",
    "dd if=direct of=/tmp/back bs=4096 iflag=direct && cmp /tmp/direct2 /tmp/back",
    "dd if=direct of=/tmp/back bs=1048576 iflag=direct && cmp /tmp/direct2 /tmp/back",
    "rm direct",
)
"""O_DIRECT: the program's own pages are read and written by RDMA."""

ATTRIBUTES = (
    "echo 0123456789 > file && truncate -s 4 file && test $(cat file) = 0123",
    "truncate -s 100000 file && test $(stat -c %s file) = 100000",
    "tail -c 99996 file | tr -d '\\000' | wc -c | grep -qx 0",
    "touch -d '2001-02-03 04:05:06' file && test $(stat -c %Y file) = 981173106",
    "chmod 640 file && test $(stat -c %a file) = 640",
    "chmod 4755 file && test $(stat -c %a file) = 4755",
    "mkdir -m 700 private && test $(stat -c %a private) = 700",
    "df . | tail -1",
    ": > file && test ! -s file",
    "rm -r file private",
)
"""Sizes, times and modes."""

PARALLEL = (
    "for n in 1 2 3 4; do head -c 1000003 /dev/urandom > /tmp/p$n; done",
    "for n in 1 2 3 4; do cp /tmp/p$n p$n & done; wait",
    "sync; echo 3 > /proc/sys/vm/drop_caches",
    "for n in 1 2 3 4; do cp p$n /tmp/q$n & done; wait",
    "for n in 1 2 3 4; do cmp /tmp/p$n /tmp/q$n || exit 1; done",
    "rm p1 p2 p3 p4",
)
"""Four copies at a time, each way."""


@dataclass(frozen=True)
class Operations:
    """Command lines in the mounted directory, each of which has to succeed."""

    commands: tuple[str, ...]

    def __call__(self, lab: Lab) -> None:
        """Raises `JobError`."""
        with _served(lab) as (_, server), _mounted(lab, server):
            for command in self.commands:
                _do(lab, command)


@dataclass(frozen=True)
class GuestReset:
    """The guest is reset while it writes; then it mounts again, and reads what was synced."""

    def __call__(self, lab: Lab) -> None:
        """Raises `JobError`."""
        with _served(lab) as (folder, server):
            _mount(lab, server)
            _do(
                lab, "head -c 100000 /dev/urandom > before && sync && md5sum < before > sum && sync"
            )
            lab.guest.start(f"cd {_MOUNT}; while :; do cp before during; sync; done")
            _do(lab, "until test -e during; do usleep 10000; done")
            lab.guest.reset()
            with _mounted(lab, server):
                _do(lab, "md5sum < before | cmp - sum")
                _do(lab, "echo after > after && test $(cat after) = after")
            if (folder / "after").read_text() != "after\n":
                raise JobError("what the guest wrote after its reset is not in the server's file")


@dataclass(frozen=True)
class ServerRestart:
    """The server is stopped and started again while a file is written: the mount goes on."""

    def __call__(self, lab: Lab) -> None:
        """Raises `JobError`."""
        with _served(lab) as (folder, first):
            ports = _ports(first)
            with _mounted(lab, first):
                _do(lab, "rm -f /tmp/enough; head -c 20000 /dev/urandom > /tmp/part")
                _do(lab, "echo kept > kept")
                # However slow the machine is, it is written until the second server is there.
                appends = "until test -e /tmp/enough; do cat /tmp/part >> whole && n=$((n + 1))"
                compares = "for each in $(seq $n); do cat /tmp/part; done | cmp - whole"
                writing = lab.guest.start(
                    f"cd {_MOUNT}; n=0; {appends} || exit 1; done; {compares}"
                )
                _do(lab, "until test -s whole; do usleep 10000; done")
                first.stop()
                with _server(lab, folder, ports):
                    _do(lab, "touch /tmp/enough")
                    writing.finish()
                    _do(lab, "test $(cat kept) = kept")
                    _do(lab, "rm whole kept")
                    lab.guest.run(f"cd /; umount {_MOUNT}")


SERVER_PORT, MOUNT_PORT = 20049, 20048
"""Of the kernel's NFS over RDMA, and of its MOUNT over TCP."""


@dataclass(frozen=True)
class KernelServer:
    """`stagecoach nfs` copies a folder to the kernel's server and back, lists and removes it."""

    def __call__(self, lab: Lab) -> None:
        """Raises `JobError`."""
        lab.guest.run(f"start_nfs_server {SERVER_PORT} {MOUNT_PORT}")
        source, back = lab.folder / "source", lab.folder / "back"
        for folder in (source, back):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        for size in _COPIED:
            (source / f"file-{size}").write_bytes(os.urandom(size))
        address, port = lab.there(SERVER_PORT)
        url = f"nfs+rdma://{address}:{port}/export"
        mount = ("--mount-port", str(lab.there(MOUNT_PORT)[1]))
        self._nfs(lab, "put", "-r", str(source), url, *mount)
        listed = self._nfs(lab, "ls", f"{url}/source", *mount)
        missing = [path.name for path in source.iterdir() if path.name not in listed]
        if missing:
            raise JobError(f"ls does not show {', '.join(missing)}: {listed}")
        self._nfs(lab, "get", "-r", f"{url}/source", str(back), *mount)
        for path in source.iterdir():
            if (back / "source" / path.name).read_bytes() != path.read_bytes():
                raise JobError(f"{path.name} came back changed")
        sums = lab.guest.run("cd /export/source && md5sum *")
        wanted = [
            f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.name}"
            for path in sorted(source.iterdir())
        ]
        if sums != wanted:
            raise JobError(f"the guest has {sums}, not {wanted}")
        self._nfs(lab, "rm", "-r", f"{url}/source", *mount)
        lab.guest.run("test ! -e /export/source")

    @staticmethod
    def _nfs(lab: Lab, *arguments: str) -> list[str]:
        with lab.ours("nfs", *arguments) as job:
            return job.finish()


def _do(lab: Lab, command: str) -> None:
    lab.guest.run(f"cd {_MOUNT} && {{ {command}; }}")


@contextmanager
def _served(lab: Lab) -> Iterator[tuple[Path, Job]]:
    folder = lab.folder / "export"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with _server(lab, folder, (0, 0)) as job:
        yield folder, job


@contextmanager
def _server(lab: Lab, folder: Path, ports: tuple[int, int]) -> Iterator[Job]:
    squash = ("--no-root-squash",) if os.geteuid() == 0 else ()
    options = ("--rdma-port", str(ports[0]), "--tcp-port", str(ports[1]), *squash)
    with lab.ours("nfs", "serve", str(folder), "--export", "/data", "-v", *options) as job:
        job.wait_for("nfs+tcp://")
        yield job


def _ports(server: Job) -> tuple[int, int]:
    """The ports of NFS over RDMA and of NFS and MOUNT over TCP."""
    found = [
        server.wait_for(f"{scheme}://").rsplit(":", 1)[1] for scheme in ("nfs+rdma", "nfs+tcp")
    ]
    rdma, tcp = (int(text.split("/")[0]) for text in found)
    return rdma, tcp


def _mount(lab: Lab, server: Job) -> None:
    rdma, tcp = _ports(server)
    options = (
        f"vers=3,proto=rdma,port={rdma},mounthost={HOST},mountport={tcp},mountproto=tcp,nolock"
    )
    lab.guest.run("modprobe -a rpcrdma nfsv3")
    lab.guest.run(f"mount.nfs {lab.here}:/data {_MOUNT} -o {options}")


@contextmanager
def _mounted(lab: Lab, server: Job) -> Iterator[None]:
    _mount(lab, server)
    try:
        yield
    except BaseException:
        lab.guest.start(f"cd /; umount -f -l {_MOUNT}")
        raise
    lab.guest.run(f"cd /; umount {_MOUNT}; ! grep -q ' {_MOUNT} ' /proc/mounts")
