"""What an endpoint does because of octets that it received, in the order in which it does it."""

from collections.abc import Callable
from dataclasses import dataclass

from stagecoach.sim.model.atomics import AtomicRequest
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.rdmap import ReadRequest, Terminate
from stagecoach.sim.model.work import Completion


@dataclass(frozen=True)
class TaggedPlacement:
    """Octets of a Write or a Read Response, written where STag and TO say."""

    stag: int
    tagged_offset: int
    octets: bytes


@dataclass(frozen=True)
class UntaggedPlacement:
    """Octets of a Send, written at ``offset`` of the receive with ``work_id``."""

    work_id: object
    offset: int
    octets: bytes


@dataclass(frozen=True)
class Invalidation:
    """The STag that a Send with Invalidate made invalid."""

    stag: int


@dataclass(frozen=True)
class Delivery:
    """A completion: of a receive, or of an RDMA Read or Atomic Operation by its response."""

    completion: Completion


@dataclass(frozen=True)
class ReadAccepted:
    """A Read Request was found good and waits for its answer."""

    request: ReadRequest


@dataclass(frozen=True)
class Response:
    """A segment of a Read Response is sent; ``octets`` were read for it."""

    request: ReadRequest
    offset: int
    octets: bytes
    last: bool


@dataclass(frozen=True)
class AtomicAccepted:
    """An Atomic Request was found good and waits for its turn."""

    request: AtomicRequest


@dataclass(frozen=True)
class AtomicPerformed:
    """An Atomic Operation replaces ``original`` by ``result`` in memory; its response is sent."""

    request: AtomicRequest
    original: int
    result: int


@dataclass(frozen=True)
class TerminateReceived:
    """The peer ends the stream."""

    terminate: Terminate


@dataclass(frozen=True)
class Failure:
    """The first failed check: nothing more is placed or delivered.

    ``terminate`` is what is sent to the peer; ``None`` where nothing may be sent: on a Terminate
    in error (RFC 5040, 7.1 does not list it), and by a responder before the first good FPDU
    (RFC 5044, 7.1.2 (4)). The connection is closed in any case.
    """

    error: ErrorCode
    detail: str
    source: str
    terminate: Terminate | None


Effect = (
    TaggedPlacement
    | UntaggedPlacement
    | Invalidation
    | Delivery
    | ReadAccepted
    | Response
    | AtomicAccepted
    | AtomicPerformed
    | TerminateReceived
    | Failure
)
Recorder = Callable[[Effect], None]


def ignore(_: Effect) -> None:
    """The recorder of who does not want to know."""
