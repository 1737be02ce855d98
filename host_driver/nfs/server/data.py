"""Procedures that move the octets of a file: READ, WRITE, COMMIT. They work in threads."""

import os

from host_driver.nfs import arguments as args
from host_driver.nfs import results as res
from host_driver.nfs.arguments import StableHow
from host_driver.nfs.server.handles import Node
from host_driver.nfs.server.objects import MAXIMUM_SIZE, TRANSFER
from host_driver.nfs.server.operation import Operation
from host_driver.nfs.status import NfsError, NfsStatus
from host_driver.nfs.threads import in_thread

_NOTHING = memoryview(b"")


async def read(op: Operation, arguments: args.ReadArguments) -> res.ReadOk:
    """READ: the file goes into the memory from which the transport sends or writes."""
    node = op.regular(arguments.file)
    rest = op.stat(node).st_size - arguments.offset
    count = min(arguments.count, TRANSFER, max(0, rest))
    fd = _open(op, node, os.O_RDONLY)
    try:
        data = _NOTHING
        if count:
            data = op.request.buffer(count)
            data = data[: await in_thread(os.preadv, fd, [data], arguments.offset)]
        eof = arguments.offset + len(data) >= os.fstat(fd).st_size
    finally:
        os.close(fd)
    return res.ReadOk(op.after(), len(data), eof, data)


async def write(op: Operation, arguments: args.WriteArguments) -> res.WriteOk:
    """WRITE: the file is written from the memory into which the transport received or read."""
    node = op.regular(arguments.file)
    op.writable()
    if arguments.count != len(arguments.data):
        raise NfsError(NfsStatus.INVAL)
    if arguments.offset + arguments.count > MAXIMUM_SIZE:
        raise NfsError(NfsStatus.FBIG)
    fd = _open(op, node, os.O_WRONLY)
    try:
        await in_thread(_write, fd, arguments)
    finally:
        os.close(fd)
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


async def commit(op: Operation, arguments: args.CommitArguments) -> res.CommitOk:
    """COMMIT: of the whole file, whatever the range."""
    node = op.regular(arguments.file)
    op.writable()
    fd = _open(op, node, os.O_WRONLY)
    try:
        await in_thread(os.fsync, fd)
    finally:
        os.close(fd)
    return res.CommitOk(op.wcc(), op.export.write_verifier)


def _open(op: Operation, node: Node, flags: int) -> int:
    return os.open(op.path(node), flags | os.O_NONBLOCK | os.O_CLOEXEC)
