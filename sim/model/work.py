"""Work requests of the reference endpoint and their completions."""

from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count

from stagecoach.sim.model.atomics import ATOMIC_OCTETS, AtomicRequest
from stagecoach.sim.model.rdmap import Opcode, ReadRequest

Buffer = bytes | bytearray | memoryview


class Operation(Enum):
    """What a work request, and so its completion, was about."""

    SEND = auto()
    RDMA_WRITE = auto()
    RDMA_READ = auto()
    FETCH_ADD = auto()
    SWAP = auto()
    CMP_SWAP = auto()
    IMMEDIATE_DATA = auto()
    RDMA_WRITE_WITH_IMMEDIATE = auto()
    RECEIVE = auto()


class Status(Enum):
    """How a work request ended."""

    SUCCESS = auto()
    FLUSHED = auto()


@dataclass(frozen=True)
class Completion:
    """The end of a work request.

    ``payload`` is what a Send brought, ``immediate`` the octets of Immediate Data, which are not
    in the receive. ``original`` is the Original Remote Data Value of an Atomic Operation.
    """

    operation: Operation
    work_id: object
    status: Status = Status.SUCCESS
    length: int = 0
    payload: bytes = b""
    solicited: bool = False
    invalidated_stag: int | None = None
    immediate: bytes | None = None
    original: int | None = None


@dataclass
class Work:
    """A work request of the send queue; ``completion`` is set when it may be reported.

    ``request`` or ``atomic`` is what an RDMA Read or an Atomic Operation sends. ``completes`` is
    the RDMA Write which has no completion but that of this Immediate Data; then ``silent`` is set
    in it.
    """

    operation: Operation
    work_id: object
    payload: Buffer = b""
    opcode: Opcode = Opcode.SEND
    stag: int = 0
    tagged_offset: int = 0
    request: ReadRequest | None = None
    completion: Completion | None = None
    atomic: AtomicRequest | None = None
    completes: "Work | None" = None
    silent: bool = False

    @property
    def length(self) -> int:
        """Octets of the ULP that are sent or, by an Atomic Operation, read."""
        if self.atomic is not None:
            return ATOMIC_OCTETS
        return len(memoryview((self.completes or self).payload).cast("B"))


@dataclass
class Receive:
    """An Untagged Buffer and how much of a Send is in it."""

    buffer: memoryview
    work_id: object
    filled: int = 0
    opcode: int | None = None

    @property
    def room(self) -> int:
        """Octets that a Send may have."""
        return len(self.buffer)

    def place(self, octets: bytes) -> None:
        """The next octets of the Send, for which there is room."""
        self.buffer[self.filled : self.filled + len(octets)] = octets
        self.filled += len(octets)

    def content(self) -> bytes:
        """The Send so far."""
        return bytes(self.buffer[: self.filled])


PLACES = count()
"""Numbers what is asked for: RDMA Reads and atomics are answered in one order (RFC 7306, 7)."""


@dataclass
class OutstandingRead:
    """A Read Request sent, and how much of its Read Response came."""

    request: ReadRequest
    work: Work
    received: int = 0
    place: int = field(default_factory=lambda: next(PLACES))
