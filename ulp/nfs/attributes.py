"""Attributes of files on the wire (RFC 1813, 2.6)."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from stagecoach.ulp.oncrpc.records import Record, Uhyper, Uint
from stagecoach.ulp.oncrpc.xdr_types import VOID, Opaque, Union

MAXIMUM_HANDLE = 64
"""NFS3_FHSIZE."""

FileHandle = Annotated[bytes, Opaque(MAXIMUM_HANDLE)]
"""nfs_fh3."""


class FileType(IntEnum):
    """ftype3."""

    REG = 1
    DIR = 2
    BLK = 3
    CHR = 4
    LNK = 5
    SOCK = 6
    FIFO = 7


@dataclass(frozen=True)
class SpecData:
    """specdata3: major and minor number of a device."""

    major: Uint
    minor: Uint


@dataclass(frozen=True, order=True)
class NfsTime:
    """nfstime3: since 1970, UTC."""

    seconds: Uint
    nseconds: Uint

    @classmethod
    def from_ns(cls, nanoseconds: int) -> "NfsTime":
        """The time; what is before 1970 or after 2106 becomes the nearest one."""
        seconds, rest = divmod(nanoseconds, 1_000_000_000)
        if seconds < 0:
            return cls(0, 0)
        return cls(seconds, rest) if seconds < 1 << 32 else cls((1 << 32) - 1, 999_999_999)

    @property
    def ns(self) -> int:
        """Nanoseconds since 1970."""
        return self.seconds * 1_000_000_000 + self.nseconds


@dataclass(frozen=True)
class FileAttributes:
    """fattr3."""

    type: FileType
    mode: Uint
    nlink: Uint
    uid: Uint
    gid: Uint
    size: Uhyper
    used: Uhyper
    rdev: SpecData
    fsid: Uhyper
    fileid: Uhyper
    atime: NfsTime
    mtime: NfsTime
    ctime: NfsTime


@dataclass(frozen=True)
class WccAttributes:
    """wcc_attr: what tells a client whether a file was changed by others."""

    size: Uhyper
    mtime: NfsTime
    ctime: NfsTime


@dataclass(frozen=True)
class WccData:
    """wcc_data: before and after an operation."""

    before: WccAttributes | None = None
    after: FileAttributes | None = None


class TimeHow(IntEnum):
    """time_how."""

    DONT_CHANGE = 0
    SET_TO_SERVER_TIME = 1
    SET_TO_CLIENT_TIME = 2


SetTime = Annotated[
    tuple[TimeHow, NfsTime | None],
    Union(TimeHow, {TimeHow.SET_TO_CLIENT_TIME: Record(NfsTime)}, VOID),
]
_UNCHANGED = (TimeHow.DONT_CHANGE, None)


@dataclass(frozen=True)
class SetAttributes:
    """sattr3: what to change; `None` leaves it."""

    mode: Uint | None = None
    uid: Uint | None = None
    gid: Uint | None = None
    size: Uhyper | None = None
    atime: SetTime = _UNCHANGED
    mtime: SetTime = _UNCHANGED
