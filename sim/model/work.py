"""Work requests of the reference endpoint and their completions."""

from dataclasses import dataclass
from enum import Enum, auto

from sim.model.rdmap import Opcode, ReadRequest

Buffer = bytes | bytearray | memoryview


class Operation(Enum):
    """What a work request, and so its completion, was about."""

    SEND = auto()
    RDMA_WRITE = auto()
    RDMA_READ = auto()
    RECEIVE = auto()


class Status(Enum):
    """How a work request ended."""

    SUCCESS = auto()
    FLUSHED = auto()


@dataclass(frozen=True)
class Completion:
    """The end of a work request. ``payload`` is what a Send brought."""

    operation: Operation
    work_id: object
    status: Status = Status.SUCCESS
    length: int = 0
    payload: bytes = b""
    solicited: bool = False
    invalidated_stag: int | None = None


@dataclass
class Work:
    """A work request of the send queue; ``completion`` is set when it may be reported."""

    operation: Operation
    work_id: object
    payload: Buffer = b""
    opcode: Opcode = Opcode.SEND
    stag: int = 0
    tagged_offset: int = 0
    request: ReadRequest | None = None
    completion: Completion | None = None


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


@dataclass
class OutstandingRead:
    """A Read Request sent, and how much of its Read Response came."""

    request: ReadRequest
    work: Work
    received: int = 0
