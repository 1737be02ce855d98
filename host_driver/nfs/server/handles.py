"""File handles: what a client holds for a file as long as it exists, whatever its name is."""

import contextlib
import os
import resource
import secrets
from collections import OrderedDict
from dataclasses import dataclass

from host_driver.nfs.server.identity import Identity, identity, identity_of, open_identity
from host_driver.nfs.status import NfsError, NfsStatus

_MAGIC = b"SNF3"
HANDLE_OCTETS = 24
_LEAST_OPEN = 64
_SWEEP_EVERY = 256
"""New handles between two looks for files that are gone."""


@dataclass(eq=False)
class Node:
    """A file that has a handle.

    fd: opened with `O_NODE`; it stays with the file when that is renamed. `None` if it was closed
    because there are too many. parent, name: where the file was seen last, to open it again.
    """

    handle: bytes
    identity: Identity
    fd: int | None
    parent: "Node | None"
    name: bytes


class HandleTable:
    """Gives handles out and finds their files.

    A handle holds 20 random octets: none can be made up. Handles of an earlier run of the server
    are stale, as those of deleted files are. A file has one handle, also if it has many names.

    Parameters
    ----------
    capacity: files that are kept open at a time; half of what the process may open if not given.
        The others are opened again by directory and name; if meanwhile someone moved one to
        another directory past the server, its handle is stale.
    """

    def __init__(self, capacity: int | None = None):
        self._capacity = _half_of_all_files() if capacity is None else capacity
        if self._capacity < _LEAST_OPEN:
            raise ValueError(f"capacity is {self._capacity}; allowed: {_LEAST_OPEN} or more")
        self._nodes: dict[bytes, Node] = {}
        self._by_identity: dict[Identity, Node] = {}
        self._open: OrderedDict[bytes, Node] = OrderedDict()  # least recently used first
        self._since_sweep = 0

    def add(self, fd: int, parent: Node | None, name: bytes) -> Node:
        """The node of a file; takes `fd`, which was opened with `O_NODE`."""
        node = self.known(fd)
        if node is not None and node.fd is not None:
            os.close(fd)
        elif node is not None:
            node.fd = fd
        else:
            found = identity(fd)
            handle = _MAGIC + secrets.token_bytes(HANDLE_OCTETS - len(_MAGIC))
            node = Node(handle, found, fd, parent, name)
            self._nodes[handle] = self._by_identity[found] = node
            self._since_sweep += 1
        if node.parent is not None:
            node.parent, node.name = parent, name
        self._use(node)
        if self._since_sweep >= _SWEEP_EVERY:
            self.sweep()
        return node

    def known(self, fd: int) -> Node | None:
        """The node of an open file, if it has a handle."""
        return self._by_identity.get(identity(fd))

    def find(self, handle: bytes) -> Node:
        """The node of a handle. Raises `NfsError`: BADHANDLE, or STALE if the file is gone."""
        if len(handle) != HANDLE_OCTETS or not handle.startswith(_MAGIC):
            raise NfsError(NfsStatus.BADHANDLE)
        node = self._nodes.get(handle)
        if node is None:
            raise NfsError(NfsStatus.STALE)
        self.fd(node)
        return node

    def fd(self, node: Node) -> int:
        """The open file of a node, checked to exist. Raises `NfsError`: STALE."""
        if node.fd is None:
            self._open_again(node)
        assert node.fd is not None
        if not os.fstat(node.fd).st_nlink:
            self._forget(node)
            raise NfsError(NfsStatus.STALE)
        self._use(node)
        return node.fd

    def _use(self, node: Node) -> None:
        self._open[node.handle] = node
        self._open.move_to_end(node.handle)
        while len(self._open) > self._capacity:
            _, oldest = self._open.popitem(last=False)
            if oldest.parent is None:  # the export itself, which has no name to find it by
                self._open[oldest.handle] = oldest
                continue
            assert oldest.fd is not None
            os.close(oldest.fd)
            oldest.fd = None

    def _open_again(self, node: Node) -> None:
        try:
            for closed in reversed(self._closed_above(node)):
                assert closed.parent is not None and closed.parent.fd is not None
                closed.fd = open_identity(closed.parent.fd, closed.name, closed.identity)
                self._use(closed)
        except OSError as error:
            self._forget(node)
            raise NfsError(NfsStatus.STALE) from error

    def _closed_above(self, node: Node) -> list[Node]:
        """The node and the directories above it, up to one that is open."""
        chain: dict[Node, None] = {}
        while node.fd is None:
            # Moved directories can seem to be in each other, until they are looked up again.
            if node.parent is None or node in chain:
                raise FileNotFoundError
            chain[node] = None
            node = node.parent
        return list(chain)

    def _forget(self, node: Node) -> None:
        self._nodes.pop(node.handle, None)
        if self._by_identity.get(node.identity) is node:
            del self._by_identity[node.identity]
        self._open.pop(node.handle, None)
        if node.fd is not None:
            os.close(node.fd)
            node.fd = None

    def sweep(self) -> None:
        """Forgets files that are deleted; until then their blocks are not free."""
        self._since_sweep = 0
        for node in list(self._open.values()):
            if node.fd is not None and not os.fstat(node.fd).st_nlink:
                self._forget(node)

    def moved(self, parent: Node, name: bytes) -> None:
        """Notes that a file has a new name."""
        with contextlib.suppress(OSError):
            node = self._by_identity.get(identity_of(self.fd(parent), name))
            if node is not None and node.parent is not None:
                node.parent, node.name = parent, name

    def removed(self, gone: Identity) -> None:
        """Forgets a file of which a name was removed, if that was the last one."""
        node = self._by_identity.get(gone)
        if node is not None:
            with contextlib.suppress(NfsError):
                self.fd(node)

    def close(self) -> None:
        """Closes all files; all handles are stale then."""
        for node in list(self._nodes.values()):
            self._forget(node)


def _half_of_all_files() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return max(_LEAST_OPEN, min(soft, 1 << 20) // 2)
