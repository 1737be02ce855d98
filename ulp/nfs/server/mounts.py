"""The MOUNT service of an export."""

import errno
import stat
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from stagecoach.ulp.nfs import mount
from stagecoach.ulp.nfs.mount import ExportEntry, MountEntry, MountOk, MountStatus
from stagecoach.ulp.nfs.server.export import Export
from stagecoach.ulp.nfs.status import NfsError, status_of
from stagecoach.ulp.oncrpc.program import Procedure
from stagecoach.ulp.oncrpc.server import Handler, Request, Service

_REMEMBERED = 1000
"""Mounts that DUMP tells, the newest."""


class Mounts:
    """Gives out the handle of the export, or of a directory in it.

    Who mounted what is only remembered for DUMP, by the name that the client gives itself.

    Parameters
    ----------
    told: is called with the address of a client and the path that it has mounted.
    """

    def __init__(
        self, export: Export, told: Callable[[str, bytes], None] = lambda client, path: None
    ):
        self._export = export
        self._told = told
        self._mounted: OrderedDict[MountEntry, None] = OrderedDict()

    def service(self) -> Service:
        """The MOUNT program, version 3."""
        handlers: dict[Procedure[Any, Any], Handler] = {
            mount.MNT: self._mount,
            mount.DUMP: lambda request, _: list(self._mounted),
            mount.UMNT: self._unmount,
            mount.UMNTALL: self._unmount_all,
            mount.EXPORT: lambda request, _: [ExportEntry(self._export.path, [])],
        }
        return Service(mount.MOUNT, handlers)

    async def _mount(self, request: Request, path: bytes) -> tuple[MountStatus, MountOk | None]:
        try:
            handle = await self._export.workers.run(request.client, self._find, request, path)
        except NfsError as error:
            return _mount_status(error.status), None
        except OSError as error:
            return _mount_status(status_of(error)), None
        entry = MountEntry(_host(request), path)
        self._mounted[entry] = None
        self._mounted.move_to_end(entry)
        if len(self._mounted) > _REMEMBERED:
            self._mounted.popitem(last=False)
        self._told(request.client, path)
        return MountStatus.OK, MountOk(handle, list(mount.FLAVORS))

    def _find(self, request: Request, path: bytes) -> bytes:
        """The handle of a directory, from the root of the export; `..` and links lead nowhere.

        Below the root the caller needs its rights: a handle leads past the directories above it.
        """
        exported, wanted = (
            list(filter(None, each.split(b"/"))) for each in (self._export.path, path)
        )
        if not path.startswith(b"/") or wanted[: len(exported)] != exported:
            raise FileNotFoundError(errno.ENOENT, "not exported")
        with self._export.rights.acting(request.credential):
            return self._walk(wanted[len(exported) :])

    def _walk(self, names: list[bytes]) -> bytes:
        file = self._export.open(self._export.root)
        try:
            for name in names:
                if name == b"..":
                    raise PermissionError(errno.EACCES, "leads up")
                above, file = file, self._export.child(file, name)
                above.close()
            if not stat.S_ISDIR(file.stat().st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "no directory")
            return file.node.handle
        finally:
            file.close()

    def _unmount(self, request: Request, path: bytes) -> None:
        self._mounted.pop(MountEntry(_host(request), path), None)

    def _unmount_all(self, request: Request, _: None) -> None:
        host = _host(request)
        for entry in [entry for entry in self._mounted if entry.host == host]:
            del self._mounted[entry]


def _host(request: Request) -> bytes:
    return b"" if request.credential is None else request.credential.machine_name


def _mount_status(status: Any) -> MountStatus:
    """The same by name; a file that is gone has no other name there."""
    return MountStatus.__members__.get(status.name, MountStatus.NOENT)
