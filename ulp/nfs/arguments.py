"""Arguments of the procedures (RFC 1813, 3.3)."""

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Annotated

from stagecoach.ulp.nfs.attributes import (
    FileHandle,
    FileType,
    NfsTime,
    SetAttributes,
    SpecData,
)
from stagecoach.ulp.oncrpc.records import Record, Uhyper, Uint
from stagecoach.ulp.oncrpc.xdr_types import VOID, BulkOpaque, FixedOpaque, Opaque, Union

MAXIMUM_NAME = 4096
"""Bytes of a filename3 that are decoded; longer ones are garbage. Servers allow less."""
MAXIMUM_PATH = 4096
"""Bytes of a nfspath3."""
VERIFIER = 8
"""NFS3_COOKIEVERFSIZE, NFS3_CREATEVERFSIZE, NFS3_WRITEVERFSIZE."""

FileName = Annotated[bytes, Opaque(MAXIMUM_NAME)]
Verifier = Annotated[bytes, FixedOpaque(VERIFIER)]
PathData = Annotated[memoryview, BulkOpaque(MAXIMUM_PATH)]
"""nfspath3, eligible for chunks in SYMLINK and READLINK (RFC 5667, 4)."""
FileData = Annotated[memoryview, BulkOpaque()]
"""Octets of a file, eligible for chunks in READ and WRITE (RFC 5667, 4)."""


@dataclass(frozen=True)
class HandleArguments:
    """Those of GETATTR, READLINK, FSSTAT, FSINFO and PATHCONF."""

    object: FileHandle


@dataclass(frozen=True)
class DirectoryArguments:
    """diropargs3: a name in a directory. Those of LOOKUP, REMOVE and RMDIR."""

    directory: FileHandle
    name: FileName


@dataclass(frozen=True)
class SetattrArguments:
    """SETATTR3args; `guard` is the ctime that the object must have."""

    object: FileHandle
    attributes: SetAttributes
    guard: NfsTime | None


class Access(IntFlag):
    """The rights that ACCESS is asked for."""

    READ = 0x01
    LOOKUP = 0x02
    MODIFY = 0x04
    EXTEND = 0x08
    DELETE = 0x10
    EXECUTE = 0x20


@dataclass(frozen=True)
class AccessArguments:
    """ACCESS3args."""

    object: FileHandle
    access: Uint


@dataclass(frozen=True)
class ReadArguments:
    """READ3args."""

    file: FileHandle
    offset: Uhyper
    count: Uint


class StableHow(IntEnum):
    """stable_how: what of a WRITE is on stable storage when it is answered."""

    UNSTABLE = 0
    DATA_SYNC = 1
    FILE_SYNC = 2


@dataclass(frozen=True)
class WriteArguments:
    """WRITE3args."""

    file: FileHandle
    offset: Uhyper
    count: Uint
    stable: StableHow
    data: FileData


class CreateMode(IntEnum):
    """createmode3."""

    UNCHECKED = 0
    GUARDED = 1
    EXCLUSIVE = 2


HowToCreate = Annotated[
    tuple[CreateMode, SetAttributes | bytes],
    Union(
        CreateMode,
        {
            CreateMode.UNCHECKED: Record(SetAttributes),
            CreateMode.GUARDED: Record(SetAttributes),
            CreateMode.EXCLUSIVE: FixedOpaque(VERIFIER),
        },
    ),
]


@dataclass(frozen=True)
class CreateArguments:
    """CREATE3args."""

    where: DirectoryArguments
    how: HowToCreate


@dataclass(frozen=True)
class MkdirArguments:
    """MKDIR3args."""

    where: DirectoryArguments
    attributes: SetAttributes


@dataclass(frozen=True)
class SymlinkArguments:
    """SYMLINK3args."""

    where: DirectoryArguments
    attributes: SetAttributes
    path: PathData


@dataclass(frozen=True)
class DeviceData:
    """devicedata3."""

    attributes: SetAttributes
    spec: SpecData


MknodData = Annotated[
    tuple[FileType, DeviceData | SetAttributes | None],
    Union(
        FileType,
        {
            FileType.CHR: Record(DeviceData),
            FileType.BLK: Record(DeviceData),
            FileType.SOCK: Record(SetAttributes),
            FileType.FIFO: Record(SetAttributes),
        },
        VOID,
    ),
]


@dataclass(frozen=True)
class MknodArguments:
    """MKNOD3args."""

    where: DirectoryArguments
    what: MknodData


@dataclass(frozen=True)
class RenameArguments:
    """RENAME3args."""

    source: DirectoryArguments
    target: DirectoryArguments


@dataclass(frozen=True)
class LinkArguments:
    """LINK3args."""

    file: FileHandle
    link: DirectoryArguments


@dataclass(frozen=True)
class ReaddirArguments:
    """READDIR3args."""

    directory: FileHandle
    cookie: Uhyper
    verifier: Verifier
    count: Uint


@dataclass(frozen=True)
class ReaddirplusArguments:
    """READDIRPLUS3args."""

    directory: FileHandle
    cookie: Uhyper
    verifier: Verifier
    dircount: Uint
    maxcount: Uint


@dataclass(frozen=True)
class CommitArguments:
    """COMMIT3args."""

    file: FileHandle
    offset: Uhyper
    count: Uint
