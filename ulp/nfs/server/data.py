"""Procedures that move the bytes of a file: READ, WRITE, COMMIT."""

import contextlib
import os
from collections.abc import Iterator

from stagecoach.ulp.nfs import arguments as args
from stagecoach.ulp.nfs import results as res
from stagecoach.ulp.nfs.arguments import StableHow
from stagecoach.ulp.nfs.server.export import OpenFile
from stagecoach.ulp.nfs.server.objects import MAXIMUM_SIZE, TRANSFER
from stagecoach.ulp.nfs.server.operation import Operation
from stagecoach.ulp.nfs.status import NfsError, NfsStatus

_NOTHING = memoryview(b"")


def read(op: Operation, arguments: args.ReadArguments) -> res.ReadOk:
    """READ: the file goes into the memory from which the transport sends or writes."""
    file = op.regular(arguments.file)
    rest = file.stat().st_size - arguments.offset
    count = min(arguments.count, TRANSFER, max(0, rest))
    data = _NOTHING
    with _opened(file, os.O_RDONLY) as fd:
        if count:
            data = op.buffer(count)
            data = data[: os.preadv(fd, [data], arguments.offset)]
        eof = arguments.offset + len(data) >= os.fstat(fd).st_size
    op.check(file)
    return res.ReadOk(op.after(), len(data), eof, data)


def write(op: Operation, arguments: args.WriteArguments) -> res.WriteOk:
    """WRITE: the file is written from the memory into which the transport received or read."""
    file = op.regular(arguments.file)
    op.writable()
    if arguments.count != len(arguments.data):
        raise NfsError(NfsStatus.INVAL)
    if arguments.offset + arguments.count > MAXIMUM_SIZE:
        raise NfsError(NfsStatus.FBIG)
    with _opened(file, os.O_WRONLY) as fd:
        _write(fd, arguments)
    return res.WriteOk(op.wcc(), arguments.count, arguments.stable, op.export.write_verifier)


def _write(fd: int, arguments: args.WriteArguments) -> None:
    data, offset = arguments.data, arguments.offset
    while len(data):
        written = os.pwritev(fd, [data], offset)
        data, offset = data[written:], offset + written
    if arguments.stable == StableHow.DATA_SYNC:
        os.fdatasync(fd)
    elif arguments.stable == StableHow.FILE_SYNC:
        os.fsync(fd)


def commit(op: Operation, arguments: args.CommitArguments) -> res.CommitOk:
    """COMMIT: of the whole file, whatever the range."""
    file = op.regular(arguments.file)
    op.writable()
    with _opened(file, os.O_WRONLY) as fd:
        os.fsync(fd)
    return res.CommitOk(op.wcc(), op.export.write_verifier)


@contextlib.contextmanager
def _opened(file: OpenFile, flags: int) -> Iterator[int]:
    fd = os.open(file.path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
