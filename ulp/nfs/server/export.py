"""The exported directory: every file that a client reaches is found from here, name by name."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from stagecoach.ulp.nfs.arguments import VERIFIER
from stagecoach.ulp.nfs.server.handles import HandleTable, Node
from stagecoach.ulp.nfs.server.identity import O_NODE
from stagecoach.ulp.nfs.server.rights import Rights, ServerRights
from stagecoach.ulp.nfs.server.workers import Workers
from stagecoach.ulp.nfs.status import NfsError, NfsStatus

_SERVER = ServerRights()


@dataclass(frozen=True, eq=False)
class OpenFile:
    """A file of the export that a call uses.

    fd: opened with `O_NODE`, for the call alone.
    """

    node: Node
    fd: int

    def stat(self) -> os.stat_result:
        """Its status now."""
        return os.fstat(self.fd)

    @property
    def path(self) -> str:
        """What the calls take that want no descriptor opened with O_PATH.

        It leads to the file itself, a symbolic link too: none is followed.
        """
        return f"/proc/self/fd/{self.fd}"

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self.fd)


class Export:
    """A directory, and the handles of its files.

    Names are looked up one at a time in an open directory, without following symbolic links, so
    that no name and no link leads out (RFC 1813, 3.2: links are for clients to follow).

    Parameters
    ----------
    directory: what is exported. path: what clients mount, the absolute path of the directory if
    not given. read_only: whether changes are refused. rights: whose rights calls have on files.
    key: of file handles; with the same one they are good after a restart (`handle_key`).
    """

    def __init__(
        self,
        directory: Path,
        path: str | None = None,
        read_only: bool = False,
        rights: Rights = _SERVER,
        key: bytes | None = None,
    ):
        path = str(directory.resolve()) if path is None else path
        if not path.startswith("/") or "/../" in f"{path}/" or "\0" in path:
            raise ValueError(f"export path is {path!r}; allowed: absolute, without ..")
        self.path = b"/" + b"/".join(filter(None, os.fsencode(path).split(b"/")))
        self.read_only = read_only
        self.rights = rights
        root = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.nodes = HandleTable(root, key=key, export=self.path)
        self.workers = Workers()
        self.write_verifier = secrets.token_bytes(VERIFIER)
        """Changes when unwritten data may be lost: at every start (RFC 1813, 3.3.7)."""

    @property
    def root(self) -> Node:
        """The directory itself."""
        return self.nodes.root

    def find(self, handle: bytes) -> OpenFile:
        """Opens the file of a handle. Raises as `HandleTable.find` and `open`."""
        with self.rights.own():
            node = self.nodes.find(handle)
            return OpenFile(node, self.nodes.open(node))

    def open(self, node: Node) -> OpenFile:
        """Opens the file of a node. Raises `NfsError`: STALE if it is not in the export now.

        Who has a handle needs no rights on the directories above, as with other servers.
        """
        with self.rights.own():
            return OpenFile(node, self.nodes.open(node))

    def check(self, file: OpenFile) -> None:
        """Raises `NfsError`: STALE unless an open file is in the export now."""
        with self.rights.own():
            self.nodes.check(file.node, file.fd)

    def child(self, directory: OpenFile, name: bytes) -> OpenFile:
        """Opens the file of a name, also of `.` and `..`; that of `..` in the root is the root.

        Raises `NfsError` or `OSError`.
        """
        if name == b"." or (name == b".." and directory.node is self.root):
            return self.open(directory.node)
        if name != b"..":
            check_name(name)
        fd = os.open(name, O_NODE, dir_fd=directory.fd)
        try:
            return OpenFile(self._node(fd, directory.node, name), fd)
        except BaseException:
            os.close(fd)
            raise

    def adopt(self, fd: int, directory: OpenFile, name: bytes) -> OpenFile:
        """A file that was just made under a name and is open; `fd` stays the caller's."""
        own = os.open(f"/proc/self/fd/{fd}", os.O_PATH | os.O_CLOEXEC)
        try:
            return OpenFile(self.nodes.add(own, directory.node, name), own)
        except BaseException:
            os.close(own)
            raise

    def _node(self, fd: int, directory: Node, name: bytes) -> Node:
        # The directory above may never have been looked up from above.
        with self.rights.own():
            return self.nodes.trace(fd) if name == b".." else self.nodes.add(fd, directory, name)

    def close(self) -> None:
        """Ends the threads and closes all files."""
        self.workers.close()
        self.nodes.close()


def check_name(name: bytes) -> None:
    """Raises `NfsError` for a name that is none: ACCES. How long one may be the kernel knows."""
    if not name or b"/" in name or b"\0" in name:
        # Of the errors that each procedure may answer the only one that fits.
        raise NfsError(NfsStatus.ACCES)
