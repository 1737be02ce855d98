"""The exported directory: every file that a client reaches is found from here, name by name."""

import os
import secrets
from pathlib import Path

from host_driver.nfs.arguments import VERIFIER
from host_driver.nfs.server.handles import HandleTable, Node
from host_driver.nfs.server.identity import O_NODE, identity, name_of
from host_driver.nfs.status import NfsError, NfsStatus

_DEEPEST = 64
"""Directories between one and the next above it that has a handle."""


class Export:
    """A directory, and the handles of its files.

    Names are looked up one at a time in an open directory, without following symbolic links, so
    that no name and no link leads out (RFC 1813, 3.2: links are for clients to follow).

    Parameters
    ----------
    directory: what is exported. path: what clients mount, the absolute path of the directory if
    not given. read_only: whether changes are refused.
    """

    def __init__(self, directory: Path, path: str | None = None, read_only: bool = False):
        path = str(directory.resolve()) if path is None else path
        if not path.startswith("/") or "/../" in f"{path}/" or "\0" in path:
            raise ValueError(f"export path is {path!r}; allowed: absolute, without ..")
        self.path = b"/" + b"/".join(filter(None, os.fsencode(path).split(b"/")))
        self.read_only = read_only
        self.nodes = HandleTable()
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.root = self.nodes.add(fd, None, b"")
        self.write_verifier = secrets.token_bytes(VERIFIER)
        """Changes when unwritten data may be lost: at every start (RFC 1813, 3.3.7)."""

    def child(self, directory: Node, name: bytes) -> Node:
        """The file of a name, also of `.` and `..`; that of `..` in the root is the root.

        Raises `NfsError` or `OSError`.
        """
        if name == b".":
            return directory
        if name == b"..":
            return self._parent(directory)
        check_name(name)
        fd = os.open(name, O_NODE, dir_fd=self.nodes.fd(directory))
        return self.nodes.add(fd, directory, name)

    def _parent(self, directory: Node) -> Node:
        """The directory above, also if it was never looked up from above."""
        if directory is self.root:
            return self.root
        climbed: list[int] = []
        fd = self.nodes.fd(directory)
        try:
            while True:
                above = os.open("..", O_NODE, dir_fd=fd)
                climbed.append(above)
                node = self.nodes.known(above)
                if node is not None:
                    break
                if len(climbed) == _DEEPEST or os.path.samestat(os.fstat(above), os.fstat(fd)):
                    raise NfsError(NfsStatus.STALE)  # someone moved it out of the export
                fd = above
            os.close(climbed.pop())
            while climbed:
                name = name_of(self.nodes.fd(node), identity(climbed[-1]))
                node = self.nodes.add(climbed.pop(), node, name)
            return node
        finally:
            for fd in climbed:
                os.close(fd)

    def close(self) -> None:
        """Closes all files."""
        self.nodes.close()


def check_name(name: bytes) -> None:
    """Raises `NfsError` for a name that is none: ACCES. How long one may be the kernel knows."""
    if not name or b"/" in name or b"\0" in name:
        # Of the errors that each procedure may answer the only one that fits.
        raise NfsError(NfsStatus.ACCES)
