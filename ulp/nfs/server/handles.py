"""File handles: what a client holds for a file as long as that exists below the export."""

import contextlib
import os
import resource
import secrets
import threading
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field

from stagecoach.ulp.nfs.server.handle_format import KEY_OCTETS, HandleFormat, check_form
from stagecoach.ulp.nfs.server.identity import (
    O_NODE,
    Identity,
    identity,
    identity_of,
    names_below,
    open_identity,
    walk,
)
from stagecoach.ulp.nfs.server.lost_files import LostFiles
from stagecoach.ulp.nfs.status import NfsError, NfsStatus

_LEAST_OPEN = 64
_SWEEP_EVERY = 256
"""New handles between two looks for files that are gone."""
_SWEPT = 2 * _SWEEP_EVERY
"""Open files that such a look is at, in turns: its time does not grow with their number."""
_PLACES = 4
"""Names of a file that are remembered."""
_TRIES = 8
"""Walks to a file that others rename meanwhile."""
_MOST_SOUGHT = 256
"""Directories that are looked for to open a file again."""


@dataclass(eq=False)
class Node:
    """A file that has a handle.

    fd: opened with `O_NODE`; it stays with the file when that is renamed, and tells its names.
    `None` if it was closed because there are too many. places: where the file was seen, the last
    place last; for when `fd` is closed, or was opened by a name that is removed.
    """

    handle: bytes
    identity: Identity
    fd: int | None
    places: "dict[tuple[Node, bytes], None]" = field(default_factory=dict)

    def seen(self, parent: "Node", name: bytes) -> None:
        """Notes a place."""
        self.places.pop((parent, name), None)
        self.places[parent, name] = None
        if len(self.places) > _PLACES:
            del self.places[next(iter(self.places))]


class HandleTable:
    """Gives handles out and finds their files. Threads may share it.

    A handle names its file and holds a code of the server's key: none can be made up. Those of an
    earlier run with the same key are good; its file is looked for when one is first used. Handles
    of deleted files are stale. A file has one handle, also if it has many names.

    A handle is good for what is found below the export: each time it is used, the file is opened
    anew, name by name from the export on, and must be the one that the handle was given out for.

    Parameters
    ----------
    root: the exported directory, opened with `O_NODE`; it belongs to the table.
    capacity: files that are kept open at a time; half of what the process may open if not given.
        The others are found by directory and name; if meanwhile someone moved one to another
        directory past the server, its handle is stale.
    key: of handles, 32 bytes; a new one, which nobody knows, if not given. export: its path.
    """

    def __init__(
        self,
        root: int,
        capacity: int | None = None,
        *,
        key: bytes | None = None,
        export: bytes = b"/",
    ):
        self._capacity = _half_of_all_files() if capacity is None else capacity
        if self._capacity < _LEAST_OPEN:
            raise ValueError(f"capacity is {self._capacity}; allowed: {_LEAST_OPEN} or more")
        self._lock = threading.RLock()
        self._nodes: dict[bytes, Node] = {}
        self._by_identity: dict[Identity, Node] = {}
        self._open: OrderedDict[Node, None] = OrderedDict()  # least recently used first
        self._since_sweep = 0
        self._to_sweep: list[Node] = []
        self._root = root
        self._format = HandleFormat(secrets.token_bytes(KEY_OCTETS) if key is None else key, export)
        self._lost = LostFiles(root, self._recover)
        found = identity(root)
        self.root = Node(self._format.make(root, found), found, root)
        self._nodes[self.root.handle] = self._by_identity[self.root.identity] = self.root

    def add(self, fd: int, parent: Node, name: bytes) -> Node:
        """The node of a file that was found under a name; `fd` stays the caller's."""
        found = identity(fd)
        with self._lock:
            node = self._by_identity.get(found)
            if node is self.root:
                return node
            if node is None:
                node = Node(self._format.make(fd, found), found, os.dup(fd))
                self._nodes[node.handle] = self._by_identity[found] = node
                self._lost.back(node.handle)
                self._since_sweep += 1
            elif node.fd is None:
                node.fd = os.dup(fd)
            node.seen(parent, name)
            self._use(node)
            if self._since_sweep >= _SWEEP_EVERY:
                self._sweep_some()
            return node

    def find(self, handle: bytes) -> Node:
        """The node of a handle.

        Raises `NfsError`: BADHANDLE; STALE if there is none; JUKEBOX if its file is being looked
        for, because an earlier run has given the handle out.
        """
        check_form(handle)
        node = self._nodes.get(handle)
        if node is None:
            self._lost.find(handle, self._format.lost_inode(handle))
            node = self._nodes.get(handle)
        if node is None:
            raise NfsError(NfsStatus.STALE)
        return node

    def _recover(self, fd: int, wanted: Collection[bytes]) -> bytes | None:
        """The handle of an open file that was looked for, whose node is there now."""
        if self._format.make(fd, identity(fd)) not in wanted:
            return None
        try:
            return self.trace(fd).handle
        except (NfsError, OSError):  # it was just moved, or is too deep
            return None

    def open(self, node: Node) -> int:
        """Opens the file of a node with `O_NODE`, for the caller, who closes it.

        Raises `NfsError`: STALE if it is not below the export now, and `OSError`.
        """
        return self._open_below(node, set())

    def check(self, node: Node, fd: int) -> None:
        """Raises `NfsError`, STALE, unless an open file of a node is below the export now."""
        found = self._walk(fd, node.identity)
        os.close(self.open(node) if found is None else found)

    def trace(self, fd: int) -> Node:
        """The node of an open file below the export; it need not have had a handle.

        Raises `NfsError`: STALE, and `OSError`.
        """
        names = names_below(self._root, fd)
        if names is None:
            raise NfsError(NfsStatus.STALE)
        node, at = self.root, os.open(".", O_NODE, dir_fd=self._root)
        try:
            for name in names:
                below = os.open(name, O_NODE, dir_fd=at)
                os.close(at)
                at = below
                node = self.add(at, node, name)
            if identity(fd) != node.identity:
                raise NfsError(NfsStatus.STALE)
        finally:
            os.close(at)
        return node

    def _open_below(self, node: Node, sought: set[Node]) -> int:
        """`open`; `sought` are nodes that are being looked for, or were not found."""
        with self._lock:
            kept = None if node.fd is None else os.dup(node.fd)
            if kept is not None:
                self._use(node)
        try:
            fd = None if kept is None else self._walk(kept, node.identity)
            if fd is None:
                fd = self._open_at_places(node, sought)
        finally:
            if kept is not None:
                os.close(kept)
        if fd is None:
            # It is deleted, or outside, or nobody knows where.
            self._forget(node)
            raise NfsError(NfsStatus.STALE)
        return fd

    def _walk(self, kept: int, wanted: Identity) -> int | None:
        """A new descriptor of an open file, if it is found below the export."""
        before = None
        for _ in range(_TRIES):
            names = names_below(self._root, kept)
            if names is None or names == before:
                return None
            try:
                fd = walk(self._root, names)
            except (FileNotFoundError, NotADirectoryError):
                before = names
                continue
            if identity(fd) == wanted and os.fstat(fd).st_nlink:
                return fd
            os.close(fd)
            before = names
        return None

    def _open_at_places(self, node: Node, sought: set[Node]) -> int | None:
        with self._lock:
            places = list(node.places)
        # Moved directories can seem to be in each other, until they are looked up again. And each
        # is looked for once: the ways up multiply with the places of every directory on them.
        if node in sought or len(sought) == _MOST_SOUGHT:
            return None
        sought.add(node)
        for parent, name in reversed(places):
            directory = None
            try:
                directory = self._open_below(parent, sought)
                fd = open_identity(directory, name, node.identity)
            except (NfsError, FileNotFoundError, NotADirectoryError, PermissionError):
                continue
            finally:
                if directory is not None:
                    os.close(directory)
            self._keep(node, fd)
            sought.discard(node)
            return fd
        return None

    def _keep(self, node: Node, fd: int) -> None:
        """From now on the file is found by this descriptor, whose name is not removed."""
        with self._lock:
            if self._nodes.get(node.handle) is not node:
                return
            if node.fd is not None:
                os.close(node.fd)
            node.fd = os.dup(fd)
            self._use(node)

    def _use(self, node: Node) -> None:
        if node is self.root:  # it has no name to find it by
            return
        self._open[node] = None
        self._open.move_to_end(node)
        while len(self._open) > self._capacity:
            oldest, _ = self._open.popitem(last=False)
            assert oldest.fd is not None
            os.close(oldest.fd)
            oldest.fd = None

    def _forget(self, node: Node) -> None:
        with self._lock:
            if node is self.root:
                return
            if self._nodes.pop(node.handle, None) is not None:
                self._lost.gone(node.handle)
            if self._by_identity.get(node.identity) is node:
                del self._by_identity[node.identity]
            self._open.pop(node, None)
            if node.fd is not None:
                os.close(node.fd)
                node.fd = None

    def sweep(self) -> None:
        """Forgets files that are deleted; until then their blocks are not free."""
        with self._lock:
            self._to_sweep.clear()
            self._since_sweep = 0
            self._forget_deleted(list(self._open))

    def _sweep_some(self) -> None:
        """The same for the files whose turn it is.

        All have had their turn when half as many handles were given out.
        """
        self._since_sweep = 0
        self._to_sweep = self._to_sweep or list(self._open)
        self._forget_deleted(self._to_sweep[-_SWEPT:])
        del self._to_sweep[-_SWEPT:]

    def _forget_deleted(self, nodes: list[Node]) -> None:
        for node in nodes:
            if node.fd is not None and not os.fstat(node.fd).st_nlink:
                self._forget(node)

    def moved(self, directory: int, parent: Node, name: bytes) -> None:
        """Notes that a file in an open directory, that of `parent`, has a new name."""
        with contextlib.suppress(OSError):
            found = identity_of(directory, name)
            with self._lock:
                node = self._by_identity.get(found)
                if node is not None and node is not self.root:
                    node.seen(parent, name)

    def removed(self, gone: int) -> None:
        """Forgets an open file of which a name was removed, if that was the last one."""
        if not os.fstat(gone).st_nlink:
            with self._lock:
                node = self._by_identity.get(identity(gone))
                if node is not None:
                    self._forget(node)

    def close(self) -> None:
        """Closes all files; all handles are stale then."""
        self._lost.close()
        for node in list(self._nodes.values()):
            self._forget(node)
        self._nodes.clear()
        if self.root.fd is not None:
            os.close(self.root.fd)
            self.root.fd = None


def _half_of_all_files() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return max(_LEAST_OPEN, min(soft, 1 << 20) // 2)
