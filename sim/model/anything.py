"""Memory and receives of which nothing is known, because they cannot be seen on the wire."""

from stagecoach.sim.model.memory import Accessor, MemoryRegion, MemoryTable
from stagecoach.sim.model.work import Receive

# RFC 5041, 5.2: a message has fewer octets.
_LONGEST_MESSAGE = 2**32 - 1


class Anywhere(MemoryRegion):
    """Memory of which nothing is known."""

    def write(self, tagged_offset: int, octets: bytes) -> None:
        pass

    def address_of(self, tagged_offset: int) -> int:
        return 0


class AnyMemory(MemoryTable):
    """Every STag is good."""

    def check(self, stag: int, *_: object, **__: object) -> MemoryRegion:
        return Anywhere(stag, memoryview(b""))

    def check_invalidate(self, stag: int, _: Accessor) -> MemoryRegion:
        return Anywhere(stag, memoryview(b""))


class AnyReceive(Receive):
    """A posted receive of which nothing is known."""

    def __init__(self, filled: int = 0, opcode: int | None = None) -> None:
        super().__init__(memoryview(b""), None, filled, opcode)

    @property
    def room(self) -> int:
        return _LONGEST_MESSAGE

    def place(self, octets: bytes) -> None:
        self.filled += len(octets)

    def content(self) -> bytes:
        return b""
