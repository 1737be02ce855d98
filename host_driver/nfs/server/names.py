"""Procedures that change names: CREATE to LINK."""

import contextlib
import os
import stat
from collections.abc import Callable

from host_driver.nfs import arguments as args
from host_driver.nfs import results as res
from host_driver.nfs.arguments import CreateMode
from host_driver.nfs.attributes import FileType, NfsTime, SetAttributes, TimeHow
from host_driver.nfs.server.export import check_name
from host_driver.nfs.server.handles import Node
from host_driver.nfs.server.identity import identity_of
from host_driver.nfs.server.objects import set_attributes
from host_driver.nfs.server.operation import Operation, attributes_of
from host_driver.nfs.status import NfsError, NfsStatus

_FILE_MODE = 0o666
_DIRECTORY_MODE = 0o777
"""Before the umask, if the client does not say."""


def _check_new(name: bytes, dots: NfsStatus = NfsStatus.EXIST) -> None:
    """Raises for a name that cannot be made or removed; `dots` for `.` and `..`."""
    if name in (b".", b".."):
        raise NfsError(dots)
    check_name(name)


def _created(op: Operation, directory: Node, name: bytes, wanted: SetAttributes) -> res.CreateOk:
    """Sets attributes of the new file, whatever the umask, and tells of it."""
    node = op.export.child(directory, name)
    set_attributes(op.path(node), wanted)
    return res.CreateOk(node.handle, attributes_of(op.stat(node)), op.wcc())


def create(op: Operation, arguments: args.CreateArguments) -> res.CreateOk:
    """CREATE."""
    directory, name = op.place(arguments.where.directory), arguments.where.name
    _check_new(name)
    mode, how = arguments.how
    if isinstance(how, bytes):
        return _create_exclusive(op, directory, name, how)
    _refuse_size(how)
    try:
        _create_file(op.fd(directory), name)
    except FileExistsError:
        if mode == CreateMode.GUARDED:
            raise
        if not stat.S_ISREG(_status(op.fd(directory), name).st_mode):
            raise
        # Of an existing file only the size is set (RFC 1813, 3.3.8).
        return _created(op, directory, name, SetAttributes(size=how.size))
    return _created(op, directory, name, how)


def _refuse_size(how: SetAttributes) -> None:
    if how.size is not None and how.size >= 1 << 63:
        raise NfsError(NfsStatus.FBIG)  # before there is a file


def _create_file(directory: int, name: bytes) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(name, flags, _FILE_MODE, dir_fd=directory))


def _status(directory: int, name: bytes) -> os.stat_result:
    return os.stat(name, dir_fd=directory, follow_symlinks=False)


def _create_exclusive(op: Operation, directory: Node, name: bytes, verifier: bytes) -> res.CreateOk:
    """The verifier is kept in the times of the file, so that a repeated call is known."""
    seconds = [int.from_bytes(part) & 0x7FFFFFFF for part in (verifier[:4], verifier[4:])]
    atime, mtime = (NfsTime(value, 0) for value in seconds)
    try:
        _create_file(op.fd(directory), name)
    except FileExistsError:
        found = _status(op.fd(directory), name)
        kept = (found.st_atime_ns, found.st_mtime_ns)
        if not stat.S_ISREG(found.st_mode) or kept != (atime.ns, mtime.ns):
            raise
    client = TimeHow.SET_TO_CLIENT_TIME
    times = SetAttributes(atime=(client, atime), mtime=(client, mtime))
    return _created(op, directory, name, times)


def mkdir(op: Operation, arguments: args.MkdirArguments) -> res.CreateOk:
    """MKDIR."""
    directory, name = op.place(arguments.where.directory), arguments.where.name
    _check_new(name)
    if arguments.attributes.size is not None:
        raise NfsError(NfsStatus.INVAL)
    os.mkdir(name, _DIRECTORY_MODE, dir_fd=op.fd(directory))
    return _created(op, directory, name, arguments.attributes)


def symlink(op: Operation, arguments: args.SymlinkArguments) -> res.CreateOk:
    """SYMLINK. The path may be any; the server follows none. Attributes of links are not set."""
    directory, name = op.place(arguments.where.directory), arguments.where.name
    _check_new(name)
    path = bytes(arguments.path)
    if not path or b"\0" in path:
        raise NfsError(NfsStatus.ACCES)
    os.symlink(path, name, dir_fd=op.fd(directory))
    return _created(op, directory, name, SetAttributes())


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
    os.mknod(name, formats[kind] | _FILE_MODE, dir_fd=op.fd(directory))
    return _created(op, directory, name, wanted)


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
    op: Operation, directory: Node, name: bytes, unlink: Callable[..., None]
) -> res.Changed:
    fd = op.fd(directory)
    gone = identity_of(fd, name)
    unlink(name, dir_fd=fd)
    op.export.nodes.removed(gone)
    return res.Changed(op.wcc())


def rename(op: Operation, arguments: args.RenameArguments) -> res.RenameResult:
    """RENAME."""
    source, name = op.place(arguments.source.directory), arguments.source.name
    target, new_name = op.place(arguments.target.directory), arguments.target.name
    for each in (name, new_name):
        _check_new(each, NfsStatus.INVAL)
    replaced = None
    with contextlib.suppress(FileNotFoundError):
        replaced = identity_of(op.fd(target), new_name)
    os.rename(name, new_name, src_dir_fd=op.fd(source), dst_dir_fd=op.fd(target))
    if replaced is not None:
        op.export.nodes.removed(replaced)
    op.export.nodes.moved(target, new_name)
    return res.RenameResult(op.wcc(0), op.wcc(1))


def rename_failure(op: Operation) -> res.RenameResult:
    """RENAME3resfail."""
    return res.RenameResult(op.wcc(0), op.wcc(1))


def link(op: Operation, arguments: args.LinkArguments) -> res.LinkResult:
    """LINK."""
    node = op.node(arguments.file)
    directory = op.place(arguments.link.directory)
    _check_new(arguments.link.name)
    if stat.S_ISDIR(op.stat(node).st_mode):
        raise NfsError(NfsStatus.INVAL)
    # Follows /proc/self/fd to the file, no link of the export.
    os.link(op.path(node), arguments.link.name, dst_dir_fd=op.fd(directory), follow_symlinks=True)
    return res.LinkResult(op.after(0), op.wcc(1))


def link_failure(op: Operation) -> res.LinkResult:
    """LINK3resfail."""
    return res.LinkResult(op.after(0), op.wcc(1))
