"""Runs tests of TAPs in a network namespace of their own: nothing of the machine's is touched."""

import ctypes
import os
import threading
from collections.abc import Callable

import pytest

_CLONE_NEWNET = 0x40000000


def in_namespace(body: Callable[[], None]) -> None:
    """Runs `body` in a thread in a new network namespace. Skips the test if that, or a TAP, is not
    permitted.
    """
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        pytest.skip("/dev/net/tun is not there or not for this user")
    libc = ctypes.CDLL(None, use_errno=True)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            if libc.unshare(_CLONE_NEWNET) != 0:
                pytest.skip(f"unshare: {os.strerror(ctypes.get_errno())}")
            body()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
