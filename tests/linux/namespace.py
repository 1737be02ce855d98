"""A network namespace for the thread that asks for it: nothing of the machine's is touched."""

import contextlib
import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

_CLONE_NEWNET = 0x40000000
_NETWORKS = "/proc/thread-self/ns/net"
_PROGRAMS = {"ip": "iproute2", "unshare": "util-linux"}
_LIBC = ctypes.CDLL(None, use_errno=True)

TUN = "/dev/net/tun"
ADVICE = "this test needs root, or `unshare -rn` before the command"


@contextlib.contextmanager
def namespace() -> Iterator[None]:
    """In the block the thread, and threads and processes that it starts, are in a new namespace.

    Fails the test if that, or a TAP in it, is not to be had.
    """
    for program, package in _PROGRAMS.items():
        if shutil.which(program) is None:
            _fail(f"{program} is not installed (Debian package {package})")
    if not os.access(TUN, os.R_OK | os.W_OK):
        _fail(f"{TUN} is not there, or not for this user; {ADVICE}")
    before = os.open(_NETWORKS, os.O_RDONLY)
    try:
        if _LIBC.unshare(_CLONE_NEWNET) != 0:
            _fail(f"unshare: {os.strerror(ctypes.get_errno())}; {ADVICE}")
        try:
            yield
        finally:
            if _LIBC.setns(before, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(before)


def in_namespace(body: Callable[[], None]) -> None:
    """Runs `body` in a thread in a new namespace: what it leaves there is gone afterwards."""

    def run() -> None:
        with namespace():
            body()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(run).result()


def _fail(why: str) -> None:
    pytest.fail(f"no network namespace with a TAP: {why}", pytrace=False)
