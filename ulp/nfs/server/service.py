"""The NFS service of an export: each procedure with what it answers if it fails."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from stagecoach.host_driver import ResourceError
from stagecoach.ulp.nfs import program
from stagecoach.ulp.nfs.server import data, directories, names, objects
from stagecoach.ulp.nfs.server.export import Export
from stagecoach.ulp.nfs.server.operation import (
    Failure,
    Operation,
    attributes,
    changed,
    no_failure,
)
from stagecoach.ulp.nfs.status import NfsError, NfsStatus, status_of
from stagecoach.ulp.nfs.threads import called_in
from stagecoach.ulp.oncrpc.program import Procedure
from stagecoach.ulp.oncrpc.server import Handler, Request, Service

_LOG = logging.getLogger(__name__)

Work = Callable[[Operation, Any], Any]

_PROCEDURES: list[tuple[Procedure[Any, Any], Work, Failure]] = [
    (program.GETATTR, objects.getattr_, no_failure),
    (program.SETATTR, objects.setattr_, changed),
    (program.LOOKUP, objects.lookup, attributes),
    (program.ACCESS, objects.access, attributes),
    (program.READLINK, objects.readlink, attributes),
    (program.READ, data.read, attributes),
    (program.WRITE, data.write, changed),
    (program.CREATE, names.create, changed),
    (program.MKDIR, names.mkdir, changed),
    (program.SYMLINK, names.symlink, changed),
    (program.MKNOD, names.mknod, changed),
    (program.REMOVE, names.remove, changed),
    (program.RMDIR, names.rmdir, changed),
    (program.RENAME, names.rename, names.rename_failure),
    (program.LINK, names.link, names.link_failure),
    (program.READDIR, directories.readdir, attributes),
    (program.READDIRPLUS, directories.readdirplus, attributes),
    (program.FSSTAT, objects.fsstat, attributes),
    (program.FSINFO, objects.fsinfo, attributes),
    (program.PATHCONF, objects.pathconf, attributes),
    (program.COMMIT, data.commit, changed),
]


_ROOM: dict[Procedure[Any, Any], Callable[[Any], int]] = {
    program.READ: lambda arguments: min(arguments.count, objects.TRANSFER),
    program.READDIR: lambda arguments: min(arguments.count, objects.DIRECTORY_TRANSFER),
    program.READDIRPLUS: lambda arguments: min(arguments.maxcount, objects.DIRECTORY_TRANSFER),
}
"""Bytes of replies that may be long, for which there must be memory before the call begins."""


def nfs_service(export: Export) -> Service:
    """The NFS program, version 3."""
    handlers: dict[Procedure[Any, Any], Handler] = {
        procedure: _handler(export, procedure, work, failure)
        for procedure, work, failure in _PROCEDURES
    }
    return Service(program.NFS, handlers)


def _handler(
    export: Export, procedure: Procedure[Any, Any], work: Work, failure: Failure
) -> Handler:
    def execute(
        request: Request, arguments: Any, buffer: Callable[[int], memoryview]
    ) -> tuple[NfsStatus, Any]:
        operation = Operation(export, request, buffer)
        with contextlib.closing(operation):
            try:
                with export.rights.acting(request.credential):
                    return NfsStatus.OK, work(operation, arguments)
            except NfsError as error:
                status = error.status
            except OSError as error:
                status = status_of(error)
                _LOG.debug("%s: %s", procedure.name, error)
            except ResourceError as error:
                status = NfsStatus.JUKEBOX  # no memory for the data now: the client tries again
                _LOG.warning("%s: %s", procedure.name, error)
            return status, failure(operation)

    async def handle(request: Request, arguments: Any) -> tuple[NfsStatus, Any]:
        room = _ROOM.get(procedure)
        if room is not None:
            await request.reserve(room(arguments))
        loop = asyncio.get_running_loop()

        def buffer(octets: int) -> memoryview:
            return called_in(loop, request.buffer, octets)

        return await export.workers.run(request.client, execute, request, arguments, buffer)

    return handle
