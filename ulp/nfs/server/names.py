"""Procedures that change names: CREATE to LINK."""

import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import replace

from stagecoach.ulp.nfs import arguments as args
from stagecoach.ulp.nfs import results as res
from stagecoach.ulp.nfs.arguments import CreateMode
from stagecoach.ulp.nfs.attributes import FileType, NfsTime, SetAttributes, TimeHow
from stagecoach.ulp.nfs.server.export import OpenFile, check_name
from stagecoach.ulp.nfs.server.identity import O_NODE
from stagecoach.ulp.nfs.server.objects import MAXIMUM_SIZE, MODE, set_attributes
from stagecoach.ulp.nfs.server.operation import Operation, attributes_of
from stagecoach.ulp.nfs.status import NfsError, NfsStatus

_FILE_MODE = 0o666
_DIRECTORY_MODE = 0o777
"""Before the umask, if the client does not say."""
_EXCLUSIVE_MODE = 0o600
"""An exclusive CREATE has no mode: the client sets it next, and until then nobody else reads."""
_OWNERS = 0o700


def _check_new(name: bytes, dots: NfsStatus = NfsStatus.EXIST) -> None:
    """Raises for a name that cannot be made or removed; `dots` for `.` and `..`."""
    if name in (b".", b".."):
        raise NfsError(dots)
    check_name(name)


def _first_mode(op: Operation, wanted: SetAttributes, default: int) -> int:
    """With which a file is made: what is wanted, or less, and never more.

    If it is to get another owner or group, these have their rights when they are set.
    """
    if wanted.mode is None:
        return default & ~op.export.workers.umask
    others = wanted.uid is not None or wanted.gid is not None
    return wanted.mode & (_OWNERS if others else MODE)


def _complete(file: OpenFile, wanted: SetAttributes) -> None:
    """Sets attributes of a new file that it could not be made with."""
    status = file.stat()
    mode = wanted.mode
    if mode is not None:
        have = stat.S_IMODE(status.st_mode)
        # A directory has this bit of the one above, if that has it.
        mode = (mode & MODE) | (have & stat.S_ISGID)
        if mode == have:
            mode = None
    set_attributes(file.path, replace(wanted, mode=mode))


def _told(op: Operation, file: OpenFile) -> res.CreateOk:
    return res.CreateOk(file.node.handle, attributes_of(file.stat()), op.wcc())


def _created(
    op: Operation, directory: OpenFile, name: bytes, wanted: SetAttributes, kind: int
) -> res.CreateOk:
    """Completes what was made under a name, and tells of it; `kind` as of `stat.S_IFMT`.

    Raises EXIST if something of another kind has taken the name.
    """
    file = op.child(directory, name)
    if stat.S_IFMT(file.stat().st_mode) != kind:
        raise NfsError(NfsStatus.EXIST)
    _complete(file, wanted)
    return _told(op, file)


def create(op: Operation, arguments: args.CreateArguments) -> res.CreateOk:
    """CREATE."""
    directory, name = op.place(arguments.where.directory), arguments.where.name
    _check_new(name)
    mode, how = arguments.how
    if isinstance(how, bytes):
        return _create_exclusive(op, directory, name, how)
    if how.size is not None and how.size > MAXIMUM_SIZE:
        raise NfsError(NfsStatus.FBIG)  # before there is a file
    try:
        return _told(op, _create_file(op, directory, name, how, _FILE_MODE))
    except FileExistsError:
        if mode == CreateMode.GUARDED:
            raise
        file = op.child(directory, name)
        if not stat.S_ISREG(file.stat().st_mode):
            raise
    # Of an existing file only the size is set (RFC 1813, 3.3.8).
    set_attributes(file.path, SetAttributes(size=how.size))
    return _told(op, file)


def _create_file(
    op: Operation, directory: OpenFile, name: bytes, wanted: SetAttributes, default: int
) -> OpenFile:
    """Makes a file; what is set of it afterwards is set of this one, whatever has its name then."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, _first_mode(op, wanted, default), dir_fd=directory.fd)
    try:
        file = op.held(op.export.adopt(fd, directory, name))
        if wanted.size is not None:
            os.ftruncate(fd, wanted.size)
    finally:
        os.close(fd)
    _complete(file, replace(wanted, size=None))
    return file


def _create_exclusive(
    op: Operation, directory: OpenFile, name: bytes, verifier: bytes
) -> res.CreateOk:
    """The verifier is kept in the times of the file, so that a repeated call is known."""
    seconds = [int.from_bytes(part) & 0x7FFFFFFF for part in (verifier[:4], verifier[4:])]
    atime, mtime = (NfsTime(value, 0) for value in seconds)
    client = TimeHow.SET_TO_CLIENT_TIME
    wanted = SetAttributes(mode=_EXCLUSIVE_MODE, atime=(client, atime), mtime=(client, mtime))
    try:
        return _told(op, _create_file(op, directory, name, wanted, _FILE_MODE))
    except FileExistsError:
        file = op.child(directory, name)
        found = file.stat()
        kept = (found.st_atime_ns, found.st_mtime_ns)
        if not stat.S_ISREG(found.st_mode) or kept != (atime.ns, mtime.ns):
            raise
    return _told(op, file)


def mkdir(op: Operation, arguments: args.MkdirArguments) -> res.CreateOk:
    """MKDIR."""
    directory, name = op.place(arguments.where.directory), arguments.where.name
    _check_new(name)
    wanted = arguments.attributes
    if wanted.size is not None:
        raise NfsError(NfsStatus.INVAL)
    os.mkdir(name, _first_mode(op, wanted, _DIRECTORY_MODE), dir_fd=directory.fd)
    return _created(op, directory, name, wanted, stat.S_IFDIR)


def symlink(op: Operation, arguments: args.SymlinkArguments) -> res.CreateOk:
    """SYMLINK. The path may be any; the server follows none. Attributes of links are not set."""
    directory, name = op.place(arguments.where.directory), arguments.where.name
    _check_new(name)
    path = bytes(arguments.path)
    if not path or b"\0" in path:
        raise NfsError(NfsStatus.ACCES)
    os.symlink(path, name, dir_fd=directory.fd)
    return _created(op, directory, name, SetAttributes(), stat.S_IFLNK)


def mknod(op: Operation, arguments: args.MknodArguments) -> res.CreateOk:
    """MKNOD, for sockets and FIFOs: devices would be those of the server's machine."""
    directory, name = op.place(arguments.where.directory), arguments.where.name
    kind, wanted = arguments.what
    formats = {FileType.SOCK: stat.S_IFSOCK, FileType.FIFO: stat.S_IFIFO}
    if not isinstance(wanted, SetAttributes):
        raise NfsError(NfsStatus.BADTYPE)
    _check_new(name)
    if wanted.size is not None:
        raise NfsError(NfsStatus.INVAL)
    mode = formats[kind] | _first_mode(op, wanted, _FILE_MODE)
    os.mknod(name, mode, dir_fd=directory.fd)
    return _created(op, directory, name, wanted, formats[kind])


def remove(op: Operation, arguments: args.DirectoryArguments) -> res.Changed:
    """REMOVE."""
    directory = op.place(arguments.directory)
    _check_new(arguments.name, NfsStatus.ACCES)
    return _unlink(op, directory, arguments.name, os.unlink)


def rmdir(op: Operation, arguments: args.DirectoryArguments) -> res.Changed:
    """RMDIR."""
    directory = op.place(arguments.directory)
    # RFC 1813, 3.3.13 has an error for each.
    _check_new(arguments.name, NfsStatus.INVAL if arguments.name == b"." else NfsStatus.EXIST)
    return _unlink(op, directory, arguments.name, os.rmdir)


def _unlink(
    op: Operation, directory: OpenFile, name: bytes, unlink: Callable[..., None]
) -> res.Changed:
    gone = os.open(name, O_NODE, dir_fd=directory.fd)
    try:
        unlink(name, dir_fd=directory.fd)
        op.export.nodes.removed(gone)
    finally:
        os.close(gone)
    return res.Changed(op.wcc())


def rename(op: Operation, arguments: args.RenameArguments) -> res.RenameResult:
    """RENAME."""
    source, name = op.place(arguments.source.directory), arguments.source.name
    target, new_name = op.place(arguments.target.directory), arguments.target.name
    for each in (name, new_name):
        _check_new(each, NfsStatus.INVAL)
    with contextlib.ExitStack() as after:
        with contextlib.suppress(FileNotFoundError):
            replaced = os.open(new_name, O_NODE, dir_fd=target.fd)
            after.callback(os.close, replaced)
            after.callback(op.export.nodes.removed, replaced)
        os.rename(name, new_name, src_dir_fd=source.fd, dst_dir_fd=target.fd)
    op.export.nodes.moved(target.fd, target.node, new_name)
    return res.RenameResult(op.wcc(0), op.wcc(1))


def rename_failure(op: Operation) -> res.RenameResult:
    """RENAME3resfail."""
    return res.RenameResult(op.wcc(0), op.wcc(1))


def link(op: Operation, arguments: args.LinkArguments) -> res.LinkResult:
    """LINK."""
    file, directory = op.node(arguments.file), op.place(arguments.link.directory)
    name = arguments.link.name
    _check_new(name)
    if stat.S_ISDIR(file.stat().st_mode):
        raise NfsError(NfsStatus.INVAL)
    # Follows /proc/self/fd to the file, no link of the export.
    os.link(file.path, name, dst_dir_fd=directory.fd, follow_symlinks=True)
    op.export.nodes.moved(directory.fd, directory.node, name)
    return res.LinkResult(op.after(0), op.wcc(1))


def link_failure(op: Operation) -> res.LinkResult:
    """LINK3resfail."""
    return res.LinkResult(op.after(0), op.wcc(1))
