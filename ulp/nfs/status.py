"""nfsstat3: how a procedure ended (RFC 1813, 2.6)."""

import errno
from enum import IntEnum

from stagecoach.host_driver import StagecoachError


class NfsStatus(IntEnum):
    """nfsstat3, without the prefix `NFS3ERR_`."""

    OK = 0
    PERM = 1
    NOENT = 2
    IO = 5
    NXIO = 6
    ACCES = 13
    EXIST = 17
    XDEV = 18
    NODEV = 19
    NOTDIR = 20
    ISDIR = 21
    INVAL = 22
    FBIG = 27
    NOSPC = 28
    ROFS = 30
    MLINK = 31
    NAMETOOLONG = 63
    NOTEMPTY = 66
    DQUOT = 69
    STALE = 70
    REMOTE = 71
    BADHANDLE = 10001
    NOT_SYNC = 10002
    BAD_COOKIE = 10003
    NOTSUPP = 10004
    TOOSMALL = 10005
    SERVERFAULT = 10006
    BADTYPE = 10007
    JUKEBOX = 10008


_WORDS = {
    NfsStatus.PERM: "not the owner",
    NfsStatus.NOENT: "no such file or directory",
    NfsStatus.IO: "input/output error",
    NfsStatus.ACCES: "permission denied",
    NfsStatus.EXIST: "it exists already",
    NfsStatus.NOTDIR: "not a directory",
    NfsStatus.ISDIR: "is a directory",
    NfsStatus.INVAL: "invalid argument",
    NfsStatus.FBIG: "larger than files may be",
    NfsStatus.NOSPC: "no space left",
    NfsStatus.ROFS: "read-only file system",
    NfsStatus.NAMETOOLONG: "name too long",
    NfsStatus.NOTEMPTY: "directory not empty",
    NfsStatus.DQUOT: "quota exceeded",
    NfsStatus.STALE: "the file is not there any more",
    NfsStatus.BADHANDLE: "no handle of this server",
    NfsStatus.NOTSUPP: "not supported by the server",
}


class NfsError(StagecoachError):
    """A procedure ended with an error.

    Attributes
    ----------
    status: which one. what: the file or procedure that it is about.
    """

    def __init__(self, status: NfsStatus, what: str = ""):
        self.status = status
        self.what = what
        words = _WORDS.get(status)
        text = f"NFS3ERR_{status.name}" + (f", {words}" if words else "")
        super().__init__(f"{what}: {text}" if what else text)


_OF_ERRNO = {
    errno.EPERM: NfsStatus.PERM,
    errno.ENOENT: NfsStatus.NOENT,
    errno.EIO: NfsStatus.IO,
    errno.ENXIO: NfsStatus.NXIO,
    errno.EACCES: NfsStatus.ACCES,
    errno.EEXIST: NfsStatus.EXIST,
    errno.EXDEV: NfsStatus.XDEV,
    errno.ENODEV: NfsStatus.NODEV,
    errno.ENOTDIR: NfsStatus.NOTDIR,
    errno.EISDIR: NfsStatus.ISDIR,
    errno.EINVAL: NfsStatus.INVAL,
    errno.EFBIG: NfsStatus.FBIG,
    errno.ENOSPC: NfsStatus.NOSPC,
    errno.EROFS: NfsStatus.ROFS,
    errno.EMLINK: NfsStatus.MLINK,
    errno.ENAMETOOLONG: NfsStatus.NAMETOOLONG,
    errno.ENOTEMPTY: NfsStatus.NOTEMPTY,
    errno.EDQUOT: NfsStatus.DQUOT,
    errno.ESTALE: NfsStatus.STALE,
    errno.EOPNOTSUPP: NfsStatus.NOTSUPP,
    errno.ENOSYS: NfsStatus.NOTSUPP,
    # A symbolic link where none is followed.
    errno.ELOOP: NfsStatus.INVAL,
    # What has no file left of its own is there for the next try.
    errno.EMFILE: NfsStatus.JUKEBOX,
    errno.ENFILE: NfsStatus.JUKEBOX,
    errno.ENOMEM: NfsStatus.JUKEBOX,
}


def status_of(error: OSError) -> NfsStatus:
    """The status for what the operating system says; IO for what NFS has no word for."""
    return _OF_ERRNO.get(error.errno or 0, NfsStatus.IO)
