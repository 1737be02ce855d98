"""Files of a server by path, and the directories between."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from stagecoach.ulp.nfs import mount
from stagecoach.ulp.nfs.arguments import VERIFIER
from stagecoach.ulp.nfs.attributes import FileAttributes, FileType
from stagecoach.ulp.nfs.client.procedures import NfsClient
from stagecoach.ulp.nfs.client.url import NfsUrl
from stagecoach.ulp.nfs.mount import MountError, MountStatus
from stagecoach.ulp.nfs.results import EntryPlus
from stagecoach.ulp.nfs.status import NfsError, NfsStatus
from stagecoach.ulp.oncrpc.client import RpcClient

_EXPORTS_OCTETS = 1 << 16
"""Of the list of exports that is taken."""
_LEAST_DIRECTORY = 4096
_MOST_DIRECTORY = 1 << 16
"""Bytes of a READDIR, whatever the server prefers."""


@dataclass(frozen=True)
class Found:
    """A file: where it is, its handle and attributes. The root of an export has no name."""

    directory: bytes
    name: bytes
    handle: bytes
    attributes: FileAttributes

    @property
    def is_directory(self) -> bool:
        """Whether it is one; a symbolic link is none."""
        return self.attributes.type == FileType.DIR


def shown(name: bytes) -> str:
    """A name or path for people: what is not printable as escapes."""
    text = name.decode(errors="backslashreplace")
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


class Files:
    """What is mounted of a server.

    Parameters
    ----------
    nfs: the server. root: handle of the mounted export, `export` its path.
    """

    def __init__(self, nfs: NfsClient, root: bytes, export: bytes):
        self.nfs = nfs
        self._root = root
        self.export = export

    @classmethod
    async def mount(
        cls, url: NfsUrl, rpc: RpcClient, mount_rpc: RpcClient | None = None
    ) -> "Files":
        """Mounts the export that the path of the URL is in.

        Parameters
        ----------
        mount_rpc: the connection to the server's MOUNT program, if that is another one.

        Raises
        ------
        MountError: no export holds the path, or the server refuses.
        """
        mounter = rpc if mount_rpc is None else mount_rpc
        exports = await mounter.call(mount.MOUNT, mount.EXPORT, None, result_octets=_EXPORTS_OCTETS)
        inside = [
            each.directory for each in exports if _below(each.directory, url.path) is not None
        ]
        if not inside:
            raise MountError(MountStatus.NOENT, url.path)
        export = max(inside, key=len)
        status, found = await mounter.call(mount.MOUNT, mount.MNT, export)
        if status != MountStatus.OK:
            raise MountError(status, export)
        return cls(NfsClient(rpc), found.handle, export)

    async def find(self, path: bytes) -> Found:
        """The file of a path of a URL. Symbolic links are not followed. Raises `NfsError`."""
        names = _below(self.export, path)
        assert names is not None
        handle = self._root
        found = Found(b"", b"", handle, await self.nfs.getattr(handle))
        for name in names:
            found = await self.child(found, name)
        return found

    async def child(self, directory: Found, name: bytes) -> Found:
        """A file of a directory. Raises `NfsError`."""
        try:
            answer = await self.nfs.lookup(directory.handle, name)
        except NfsError as error:
            raise NfsError(error.status, shown(name)) from error
        attributes = answer.attributes or await self.nfs.getattr(answer.object)
        return Found(directory.handle, name, answer.object, attributes)

    async def parent(self, path: bytes) -> tuple[Found, bytes]:
        """The directory of a path, and the name in it. Raises `NfsError`: EXIST for the root."""
        names = _below(self.export, path)
        if not names:
            raise NfsError(NfsStatus.EXIST, shown(path))
        above = path.rstrip(b"/").rpartition(b"/")[0]
        return await self.find(above or b"/"), names[-1]

    async def entries(self, directory: Found) -> AsyncIterator[Found]:
        """The files of a directory, without `.` and `..`, in the order of the server.

        Raises `NfsError`: SERVERFAULT too, if the server lists a name that is none.
        """
        preferred = (await self.nfs.fsinfo(directory.handle)).dtpref
        count = min(max(preferred, _LEAST_DIRECTORY), _MOST_DIRECTORY)
        cookie, verifier, seen = 0, bytes(VERIFIER), {0}
        while True:
            page = await self.nfs.readdirplus(directory.handle, count, cookie, verifier)
            for entry in page.entries:
                if entry.name not in (b".", b".."):
                    yield await self._of_entry(directory, entry)
            if page.eof:
                return
            if not page.entries or page.entries[-1].cookie in seen:
                raise NfsError(NfsStatus.SERVERFAULT, "a directory without end")
            cookie, verifier = page.entries[-1].cookie, page.verifier
            seen.add(cookie)

    async def _of_entry(self, directory: Found, entry: EntryPlus) -> Found:
        if not entry.name or b"/" in entry.name or b"\0" in entry.name:
            raise NfsError(NfsStatus.SERVERFAULT, f"the name {shown(entry.name)!r}")
        if entry.handle is None or entry.attributes is None:
            return await self.child(directory, entry.name)
        return Found(directory.handle, entry.name, entry.handle, entry.attributes)

    async def remove(self, found: Found, recursive: bool = False) -> None:
        """Removes a file, or with `recursive` a directory with everything in it."""
        if not found.is_directory:
            await self.nfs.remove(found.directory, found.name)
            return
        if not recursive:
            raise NfsError(NfsStatus.ISDIR, shown(found.name))
        for child in [each async for each in self.entries(found)]:
            await self.remove(child, recursive)
        if found.name:
            await self.nfs.rmdir(found.directory, found.name)


def _below(export: bytes, path: bytes) -> list[bytes] | None:
    """Names from an export down to a path; `None` if that is not below."""
    above, names = (list(filter(None, each.split(b"/"))) for each in (export, path))
    return names[len(above) :] if names[: len(above)] == above else None
