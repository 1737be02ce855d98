"""Results of the procedures (RFC 1813, 3.3): one record for success, and those for failure."""

from dataclasses import dataclass, field
from enum import IntFlag
from typing import Annotated

from stagecoach.ulp.nfs.arguments import FileData, FileName, PathData, StableHow, Verifier
from stagecoach.ulp.nfs.attributes import FileAttributes, FileHandle, NfsTime, WccData
from stagecoach.ulp.oncrpc.records import Record, Uhyper, Uint
from stagecoach.ulp.oncrpc.xdr_types import LinkedList


@dataclass(frozen=True)
class GetattrOk:
    """GETATTR3resok."""

    attributes: FileAttributes


@dataclass(frozen=True)
class Attributes:
    """Attributes of the object, if the server could get them: failure of what changes nothing."""

    attributes: FileAttributes | None = None


@dataclass(frozen=True)
class Changed:
    """What a change did to the object or its directory: failure, and success of some."""

    wcc: WccData = field(default_factory=WccData)


@dataclass(frozen=True)
class LookupOk:
    """LOOKUP3resok."""

    object: FileHandle
    attributes: FileAttributes | None
    directory: FileAttributes | None


@dataclass(frozen=True)
class AccessOk:
    """ACCESS3resok."""

    attributes: FileAttributes | None
    access: Uint


@dataclass(frozen=True)
class ReadlinkOk:
    """READLINK3resok."""

    attributes: FileAttributes | None
    path: PathData


@dataclass(frozen=True)
class ReadOk:
    """READ3resok."""

    attributes: FileAttributes | None
    count: Uint
    eof: bool
    data: FileData


@dataclass(frozen=True)
class WriteOk:
    """WRITE3resok."""

    wcc: WccData
    count: Uint
    committed: StableHow
    verifier: Verifier


@dataclass(frozen=True)
class CreateOk:
    """CREATE3resok, and those of MKDIR, SYMLINK and MKNOD."""

    object: FileHandle | None
    attributes: FileAttributes | None
    wcc: WccData


@dataclass(frozen=True)
class RenameResult:
    """RENAME3resok and RENAME3resfail: of both directories."""

    source: WccData = field(default_factory=WccData)
    target: WccData = field(default_factory=WccData)


@dataclass(frozen=True)
class LinkResult:
    """LINK3resok and LINK3resfail: of the file, and of the directory of the new link."""

    attributes: FileAttributes | None = None
    wcc: WccData = field(default_factory=WccData)


@dataclass(frozen=True)
class Entry:
    """entry3: a name in a directory; its cookie is where the next READDIR goes on."""

    fileid: Uhyper
    name: FileName
    cookie: Uhyper


@dataclass(frozen=True)
class EntryPlus:
    """entryplus3."""

    fileid: Uhyper
    name: FileName
    cookie: Uhyper
    attributes: FileAttributes | None
    handle: FileHandle | None


@dataclass(frozen=True)
class ReaddirOk:
    """READDIR3resok."""

    attributes: FileAttributes | None
    verifier: Verifier
    entries: Annotated[list[Entry], LinkedList(Record(Entry))]
    eof: bool


@dataclass(frozen=True)
class ReaddirplusOk:
    """READDIRPLUS3resok."""

    attributes: FileAttributes | None
    verifier: Verifier
    entries: Annotated[list[EntryPlus], LinkedList(Record(EntryPlus))]
    eof: bool


@dataclass(frozen=True)
class FsstatOk:
    """FSSTAT3resok: bytes and files of the file system; all, free, free for the caller."""

    attributes: FileAttributes | None
    tbytes: Uhyper
    fbytes: Uhyper
    abytes: Uhyper
    tfiles: Uhyper
    ffiles: Uhyper
    afiles: Uhyper
    invarsec: Uint


class Properties(IntFlag):
    """FSF3_LINK and so on."""

    LINK = 0x01
    SYMLINK = 0x02
    HOMOGENEOUS = 0x08
    CANSETTIME = 0x10


@dataclass(frozen=True)
class FsinfoOk:
    """FSINFO3resok: greatest, preferred and multiple sizes of READ, WRITE and READDIR."""

    attributes: FileAttributes | None
    rtmax: Uint
    rtpref: Uint
    rtmult: Uint
    wtmax: Uint
    wtpref: Uint
    wtmult: Uint
    dtpref: Uint
    maxfilesize: Uhyper
    time_delta: NfsTime
    properties: Uint


@dataclass(frozen=True)
class PathconfOk:
    """PATHCONF3resok."""

    attributes: FileAttributes | None
    linkmax: Uint
    name_max: Uint
    no_trunc: bool
    chown_restricted: bool
    case_insensitive: bool
    case_preserving: bool


@dataclass(frozen=True)
class CommitOk:
    """COMMIT3resok."""

    wcc: WccData
    verifier: Verifier
