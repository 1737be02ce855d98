"""What a device at a link asks of its host, and what the host asks of it; of one thread."""

import time
from collections import deque
from collections.abc import Callable, Container, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from stagecoach.host_driver.hostlink.endpoint import Endpoint
from stagecoach.host_driver.hostlink.memory import DECERR, WORD, MappedMemory
from stagecoach.host_driver.transport.base import TransportError, TransportTimeout
from stagecoach.hw.interface.hostlink import MAXIMUM_BEATS, Kind

ACCESS_SECONDS = 30.0
"""For which a register access may take, if nothing else is said."""


_WORDS = range(1, MAXIMUM_BEATS + 1)
_PAYLOADS: Mapping[Kind, Container[int]] = {
    Kind.REGISTER_DONE: (5,),
    Kind.MEMORY_READ: (10,),
    Kind.MEMORY_WRITE: [8 + 9 * words for words in _WORDS],
    Kind.INTERRUPT: (1,),
}
"""Bytes that the payload of a message of every device has."""


def _address(kind: int, field: bytes) -> int:
    address = int.from_bytes(field, "little")
    if address % WORD:
        raise TransportError(
            f"the device has sent {Kind(kind).name} at {address:#x}; allowed: multiples of {WORD}"
        )
    return address


def octets_of(kind: int, field: bytes) -> int:
    """How many bytes a message asks for. Raises `TransportError` if they are too many."""
    octets = int.from_bytes(field, "little")
    if not 1 <= octets <= 8 * MAXIMUM_BEATS:
        raise TransportError(
            f"the device has sent {Kind(kind).name} for {octets} bytes; "
            f"allowed: 1 to {8 * MAXIMUM_BEATS}"
        )
    return octets


@dataclass
class _Access:
    kind: int
    payload: bytes
    what: str
    result: "Future[int]"
    asked: float


class LinkedDevice:
    """Serves the messages that every device has; a kind of device adds those of its own.

    Parameters
    ----------
    endpoint: of the link. memory: what the device may reach.
    interrupt: called with the levels of the interrupts, a bit for each.
    access_seconds: for which an access of the host may take.

    Attributes
    ----------
    payloads: bytes that the payload of a message has.
    """

    payloads: Mapping[Kind, Container[int]] = _PAYLOADS

    def __init__(
        self,
        endpoint: Endpoint,
        memory: MappedMemory,
        interrupt: Callable[[int], None],
        access_seconds: float = ACCESS_SECONDS,
    ):
        self.endpoint = endpoint
        self._memory = memory
        self._interrupt = interrupt
        self._accesses: deque[_Access] = deque()  # the first is under way
        self._access_seconds = access_seconds

    # Registers

    def access(self, address: int, value: int | None, result: "Future[int]") -> None:
        """Reads a register, or writes `value`; accesses are made in the order of the calls.

        It fails with `TransportTimeout` if it takes too long, and at once while the device owes the
        answer of another one that took too long.
        """
        now = time.monotonic()
        self.check_time(now)
        if self._accesses and self._accesses[0].result.done():
            owed = self._accesses[0].what
            what = f"register {address:#x}: the device has still to answer the {owed}"
            _fail(result, TransportTimeout(what))
            return
        kind, verb, octets = Kind.REGISTER_READ, "read", b""
        if value is not None:
            kind, verb, octets = Kind.REGISTER_WRITE, "write", value.to_bytes(4, "little")
        payload = address.to_bytes(2, "little") + octets
        what = f"{verb} of register {address:#x}"
        self._accesses.append(_Access(kind, payload, what, result, now))
        if len(self._accesses) == 1:
            self._begin_access()

    def _begin_access(self) -> None:
        access = self._accesses[0]
        self.endpoint.send(access.kind, access.payload)

    def _end_access(self, payload: bytes) -> None:
        access = self._accesses.popleft()
        if payload[0]:
            error = TransportError(f"{access.what}: the device answers with an error response")
            _fail(access.result, error)
        elif not access.result.done():
            access.result.set_result(int.from_bytes(payload[1:5], "little"))
        if self._accesses:
            self._begin_access()

    def check_time(self, now: float) -> None:
        """Lets accesses fail that take too long. The first stays until its answer comes."""
        late = [one for one in self._accesses if now - one.asked >= self._access_seconds]
        for access in late:
            what = f"{access.what}: the device does not answer within {self._access_seconds:g} s"
            _fail(access.result, TransportTimeout(what))
            if access is not self._accesses[0]:
                self._accesses.remove(access)

    def fail(self, error: Exception) -> None:
        """Ends all accesses with an error."""
        for access in self._accesses:
            _fail(access.result, error)
        self._accesses.clear()

    # Messages of the device

    def take(self, kind: int, payload: bytes) -> None:
        """Does what a message asks for. Raises `TransportError` if no device sends such a one."""
        if kind in self.payloads and len(payload) not in self.payloads[Kind(kind)]:
            raise TransportError(
                f"the device has sent {Kind(kind).name} with {len(payload)} bytes of payload"
            )
        match kind:
            case Kind.REGISTER_DONE if self._accesses:
                self._end_access(payload)
            case Kind.MEMORY_READ:
                address, octets = _address(kind, payload[:8]), octets_of(kind, payload[8:10])
                if octets % WORD:
                    raise TransportError(
                        f"the device has sent MEMORY_READ for {octets} bytes; "
                        f"allowed: multiples of {WORD}"
                    )
                words = self._memory.read(address, octets)
                answer = bytes([DECERR]) if words is None else bytes(1) + words
                self.endpoint.send(Kind.READ_DATA, answer)
            case Kind.MEMORY_WRITE:
                address = _address(kind, payload[:8])
                response = self._memory.write(address, payload[8:])
                self.endpoint.send(Kind.WRITE_DONE, bytes([response]))
            case Kind.INTERRUPT:
                self._interrupt(payload[0])

    # What there may be beside

    def deadline(self) -> float | None:
        """When `serve` has something to do without being asked; `None`: never."""
        return None

    def ready(self, data: object, events: int) -> None:
        """A file that was registered with `data` can be read or written."""

    def serve(self) -> None:
        """Says what is to be said."""

    def leave(self, seconds: float) -> None:
        """Begins to end what goes on, in so many seconds at most."""

    @property
    def left(self) -> bool:
        """Whether that has ended."""
        return True

    def close(self) -> None:
        """Ends all, without waiting."""


def _fail(result: "Future[int]", error: Exception) -> None:
    if not result.done():
        result.set_exception(error)
