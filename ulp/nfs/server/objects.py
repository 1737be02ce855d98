"""Procedures about one object: GETATTR, SETATTR, LOOKUP, ACCESS, READLINK, FSSTAT and others."""

import os
import stat
import time

from stagecoach.ulp.nfs import arguments as args
from stagecoach.ulp.nfs import results as res
from stagecoach.ulp.nfs.arguments import Access
from stagecoach.ulp.nfs.attributes import NfsTime, SetAttributes, SetTime, TimeHow
from stagecoach.ulp.nfs.server.operation import Operation, attributes_of
from stagecoach.ulp.nfs.status import NfsError, NfsStatus

TRANSFER = 1 << 20
"""Greatest and preferred bytes of a READ or WRITE."""
DIRECTORY_TRANSFER = 1 << 16
"""Greatest and preferred bytes of a READDIR or READDIRPLUS."""
MAXIMUM_SIZE = (1 << 63) - 1
"""Of a file: off_t."""

MODE = 0o7777
"""Bits that `chmod` sets."""
_BILLION = 1_000_000_000


def getattr_(op: Operation, arguments: args.HandleArguments) -> res.GetattrOk:
    """GETATTR."""
    return res.GetattrOk(attributes_of(op.node(arguments.object).stat()))


def setattr_(op: Operation, arguments: args.SetattrArguments) -> res.Changed:
    """SETATTR."""
    file = op.node(arguments.object)
    op.writable()
    status = file.stat()
    if arguments.guard is not None and arguments.guard != NfsTime.from_ns(status.st_ctime_ns):
        raise NfsError(NfsStatus.NOT_SYNC)
    if arguments.attributes.size is not None and not stat.S_ISREG(status.st_mode):
        raise NfsError(NfsStatus.INVAL)
    set_attributes(file.path, arguments.attributes)
    return res.Changed(op.wcc())


def set_attributes(path: str, wanted: SetAttributes) -> None:
    """Sets attributes of what is at a path such as `OpenFile.path`; raises `NfsError` or `OSError`.

    Bits of the mode that are no permissions are left out, as servers do.
    """
    if wanted.size is not None:
        if wanted.size > MAXIMUM_SIZE:
            raise NfsError(NfsStatus.FBIG)
        os.truncate(path, wanted.size)
    if wanted.uid is not None or wanted.gid is not None:
        unchanged = -1
        os.chown(
            path,
            unchanged if wanted.uid is None else wanted.uid,
            unchanged if wanted.gid is None else wanted.gid,
        )
    if wanted.mode is not None:
        os.chmod(path, wanted.mode & MODE)
    if (wanted.atime[0], wanted.mtime[0]) != (TimeHow.DONT_CHANGE, TimeHow.DONT_CHANGE):
        status, now = os.stat(path), time.time_ns()
        atime = _time(wanted.atime, status.st_atime_ns, now)
        os.utime(path, ns=(atime, _time(wanted.mtime, status.st_mtime_ns, now)))


def _time(wanted: SetTime, before: int, now: int) -> int:
    how, value = wanted
    if how == TimeHow.DONT_CHANGE:
        return before
    if how == TimeHow.SET_TO_SERVER_TIME:
        return now
    assert value is not None
    if value.nseconds >= _BILLION:
        raise NfsError(NfsStatus.INVAL)
    return value.ns


def lookup(op: Operation, arguments: args.DirectoryArguments) -> res.LookupOk:
    """LOOKUP."""
    directory = op.directory(arguments.directory)
    found = op.child(directory, arguments.name)
    attributes = attributes_of(found.stat())
    op.check(directory)
    return res.LookupOk(found.node.handle, attributes, op.after())


def access(op: Operation, arguments: args.AccessArguments) -> res.AccessOk:
    """ACCESS: what the user of the server may, since everything is done as that user."""
    file = op.node(arguments.object)
    granted, is_directory = Access(0), stat.S_ISDIR(file.stat().st_mode)
    for mode, rights in (
        (os.R_OK, Access.READ),
        (os.W_OK, Access.MODIFY | Access.EXTEND | (Access.DELETE if is_directory else Access(0))),
        (os.X_OK, Access.LOOKUP if is_directory else Access.EXECUTE),
    ):
        if not (mode == os.W_OK and op.export.read_only):
            if os.access(file.path, mode, effective_ids=True):
                granted |= rights
    return res.AccessOk(op.after(), granted & arguments.access)


def readlink(op: Operation, arguments: args.HandleArguments) -> res.ReadlinkOk:
    """READLINK: the path as it is; where it leads is the client's matter."""
    file = op.node(arguments.object)
    if not stat.S_ISLNK(file.stat().st_mode):
        raise NfsError(NfsStatus.INVAL)
    path = os.readlink(b"", dir_fd=file.fd)
    data = op.buffer(len(path))
    data[:] = path
    return res.ReadlinkOk(op.after(), data)


def fsstat(op: Operation, arguments: args.HandleArguments) -> res.FsstatOk:
    """FSSTAT."""
    found = os.fstatvfs(op.node(arguments.object).fd)
    return res.FsstatOk(
        op.after(),
        tbytes=found.f_blocks * found.f_frsize,
        fbytes=found.f_bfree * found.f_frsize,
        abytes=found.f_bavail * found.f_frsize,
        tfiles=found.f_files,
        ffiles=found.f_ffree,
        afiles=found.f_favail,
        invarsec=0,
    )


def fsinfo(op: Operation, arguments: args.HandleArguments) -> res.FsinfoOk:
    """FSINFO."""
    op.node(arguments.object)
    properties = res.Properties.LINK | res.Properties.SYMLINK
    properties |= res.Properties.HOMOGENEOUS | res.Properties.CANSETTIME
    return res.FsinfoOk(
        op.after(),
        rtmax=TRANSFER,
        rtpref=TRANSFER,
        rtmult=1,
        wtmax=TRANSFER,
        wtpref=TRANSFER,
        wtmult=1,
        dtpref=DIRECTORY_TRANSFER,
        maxfilesize=MAXIMUM_SIZE,
        time_delta=NfsTime(0, 1),
        properties=properties,
    )


def pathconf(op: Operation, arguments: args.HandleArguments) -> res.PathconfOk:
    """PATHCONF."""
    fd = op.node(arguments.object).fd
    return res.PathconfOk(
        op.after(),
        linkmax=os.fpathconf(fd, "PC_LINK_MAX"),
        name_max=os.fstatvfs(fd).f_namemax,
        no_trunc=True,
        chown_restricted=True,
        case_insensitive=False,
        case_preserving=True,
    )
