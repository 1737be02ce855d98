"""The MOUNT program, version 3: from the path of an export to a handle (RFC 1813, appendix I)."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from stagecoach.host_driver import StagecoachError
from stagecoach.ulp.nfs.attributes import FileHandle
from stagecoach.ulp.oncrpc.auth import AUTH_NONE, AUTH_SYS
from stagecoach.ulp.oncrpc.program import Procedure, Program, null_procedure
from stagecoach.ulp.oncrpc.records import Record
from stagecoach.ulp.oncrpc.xdr_types import UINT, VOID, Array, LinkedList, Opaque, Union

MOUNT_PROGRAM = 100005
MOUNT_VERSION = 3
MAXIMUM_PATH = 1024
"""MNTPATHLEN."""
MAXIMUM_NAME = 255
"""MNTNAMLEN."""
FLAVORS = [AUTH_SYS, AUTH_NONE]
"""Authentication that servers here take."""

DIRECTORY_PATH = Opaque(MAXIMUM_PATH)
Name = Annotated[bytes, Opaque(MAXIMUM_NAME)]
DirectoryPath = Annotated[bytes, DIRECTORY_PATH]


class MountStatus(IntEnum):
    """mountstat3, without the prefix `MNT3ERR_`."""

    OK = 0
    PERM = 1
    NOENT = 2
    IO = 5
    ACCES = 13
    NOTDIR = 20
    INVAL = 22
    NAMETOOLONG = 63
    NOTSUPP = 10004
    SERVERFAULT = 10006


class MountError(StagecoachError):
    """The server does not give the handle of a path.

    Attributes
    ----------
    status: why.
    """

    def __init__(self, status: MountStatus, path: bytes):
        self.status = status
        super().__init__(f"cannot mount {path.decode(errors='replace')}: MNT3ERR_{status.name}")


class MountNotFound(StagecoachError):
    """Nobody tells where the server's MOUNT program is."""

    def __init__(self, host: str, why: str):
        super().__init__(
            f"{host} has no MOUNT program on the connection of NFS, and {why}; "
            "name its TCP port with --mount-port"
        )


@dataclass(frozen=True)
class MountOk:
    """mountres3_ok."""

    handle: FileHandle
    flavors: Annotated[list[int], Array(UINT, 64)]


@dataclass(frozen=True)
class MountEntry:
    """mountbody: who mounted what."""

    host: Name
    directory: DirectoryPath


@dataclass(frozen=True)
class ExportEntry:
    """exportnode: a directory, and the groups of clients that may mount it; none is everybody."""

    directory: DirectoryPath
    groups: Annotated[list[bytes], LinkedList(Opaque(MAXIMUM_NAME))]


NULL = null_procedure()
MNT = Procedure(
    1, "MNT", DIRECTORY_PATH, Union(MountStatus, {MountStatus.OK: Record(MountOk)}, VOID)
)
DUMP = Procedure(2, "DUMP", VOID, LinkedList(Record(MountEntry)))
UMNT = Procedure(3, "UMNT", DIRECTORY_PATH, VOID)
UMNTALL = Procedure(4, "UMNTALL", VOID, VOID)
EXPORT = Procedure(5, "EXPORT", VOID, LinkedList(Record(ExportEntry)))

MOUNT = Program("MOUNT", MOUNT_PROGRAM, MOUNT_VERSION, [NULL, MNT, DUMP, UMNT, UMNTALL, EXPORT])
