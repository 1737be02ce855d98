"""Whose rights a call has on the file system: those of the server, or of the user who calls."""

import ctypes
import errno
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from stagecoach.ulp.oncrpc.auth import Credential

NOBODY = 65534
"""Of the anonymous user and group, if nothing else is said (exports(5))."""

_NO_ID = 0xFFFFFFFF
"""Changes nothing where a uid or gid is set."""
_SETGROUPS = {"x86_64": 116, "aarch64": 159, "riscv64": 159}
"""Numbers of the system call; the function of the C library changes all threads of the process."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.setfsuid.argtypes = _libc.setfsgid.argtypes = (ctypes.c_uint32,)
_libc.setfsuid.restype = _libc.setfsgid.restype = ctypes.c_uint32
_libc.syscall.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p)
_libc.syscall.restype = ctypes.c_long


@dataclass(frozen=True)
class User:
    """Who the file system takes the caller for."""

    uid: int
    gid: int
    gids: tuple[int, ...] = ()


class Rights(Protocol):
    """Whose rights the thread of a call has. Both are context managers."""

    def acting(self, credential: Credential) -> AbstractContextManager[None]:
        """Inside the thread has the rights of a caller. Raises `OSError`."""

    def own(self) -> AbstractContextManager[None]:
        """Inside the thread has those of the server, also inside of `acting`."""


class ServerRights:
    """Every call has the rights of the user who runs the server, whatever the client claims."""

    def acting(self, credential: Credential) -> AbstractContextManager[None]:
        """Nothing changes."""
        return nullcontext()

    def own(self) -> AbstractContextManager[None]:
        """Nothing has changed."""
        return nullcontext()


@dataclass(frozen=True)
class Squash:
    """Whom callers are taken for, as in exports(5).

    Attributes
    ----------
    root: whether uid and gid 0 are the anonymous ones (root_squash). everybody: whether all are
        (all_squash). uid, gid: the anonymous ones (anonuid, anongid).
    """

    root: bool = True
    everybody: bool = False
    uid: int = NOBODY
    gid: int = NOBODY

    def user(self, credential: Credential) -> User:
        """Whom the file system is to take a caller for."""
        if credential is None or self.everybody:
            return User(self.uid, self.gid)
        uid = self.uid if self._squashed(credential.uid) else credential.uid
        gid = self._group(credential.gid)
        return User(uid, gid, tuple(self._group(each) for each in credential.gids))

    def _group(self, gid: int) -> int:
        return self.gid if self._squashed(gid) else gid

    def _squashed(self, number: int) -> bool:
        return number == _NO_ID or (self.root and number == 0)

    def describe(self) -> str:
        """In words of exports(5)."""
        how = "all_squash" if self.everybody else "root_squash" if self.root else "no_root_squash"
        return f"{how}, anonuid={self.uid}, anongid={self.gid}"


class ClientRights:
    """A call has the rights of the user whom its credential names; the server runs as root.

    Only the ids for the file system change, of the thread alone (setfsuid(2)): the capabilities of
    root that override permissions of files go with uid 0.

    Raises `OSError` if the process cannot do that.
    """

    def __init__(self, squash: Squash):
        self._squash = squash
        self._own = User(os.geteuid(), os.getegid(), tuple(os.getgroups()))
        self._thread = threading.local()
        if platform.machine() not in _SETGROUPS:
            raise OSError(
                f"rights of clients on {platform.machine()}; allowed: {', '.join(_SETGROUPS)}, "
                "or a server that does not run as root"
            )
        with self.acting(None):
            pass

    @contextmanager
    def acting(self, credential: Credential) -> Iterator[None]:
        """As `Rights.acting`."""
        user = self._squash.user(credential)
        try:
            _become(user)
            self._thread.user = user
            yield
        finally:
            self._thread.user = None
            _become(self._own)

    @contextmanager
    def own(self) -> Iterator[None]:
        """As `Rights.own`."""
        user = getattr(self._thread, "user", None)
        if user is None:
            yield
            return
        _become(self._own)
        try:
            yield
        finally:
            _become(user)


def _become(user: User) -> None:
    groups = (ctypes.c_uint32 * len(user.gids))(*user.gids)
    if _libc.syscall(_SETGROUPS[platform.machine()], len(user.gids), ctypes.addressof(groups)):
        code = ctypes.get_errno()
        raise OSError(code, f"cannot have the groups {user.gids}: {os.strerror(code)}")
    _libc.setfsgid(user.gid)
    _libc.setfsuid(user.uid)
    # They report no errors: what they are now is told by a call that changes nothing.
    now = (_libc.setfsuid(_NO_ID), _libc.setfsgid(_NO_ID))
    if now != (user.uid, user.gid):
        raise PermissionError(
            errno.EACCES,
            f"cannot work as uid {user.uid}, gid {user.gid}: they are {now[0]} and {now[1]}",
        )
