"""An RNIC at a link: the kernel's TCP sockets are lent to its LLP port."""

import selectors
from collections.abc import Callable, Container, Mapping

from stagecoach.host_driver.hostlink.device import ACCESS_SECONDS, LinkedDevice, octets_of
from stagecoach.host_driver.hostlink.endpoint import Endpoint
from stagecoach.host_driver.hostlink.llp import KernelLlp
from stagecoach.host_driver.hostlink.memory import MappedMemory
from stagecoach.hw.interface.hostlink import MAXIMUM_BEATS, Kind


class LinkedRnic(LinkedDevice):
    """Serves the messages of an RNIC.

    Parameters
    ----------
    selector: where the thread of the link waits. events: for which the device has room.
    record: keep what crosses the LLP. endpoint, memory, interrupt, access_seconds: see
        `LinkedDevice`.

    Attributes
    ----------
    llp: its connections.
    """

    payloads: Mapping[Kind, Container[int]] = {
        **LinkedDevice.payloads,
        Kind.LLP_SEND: range(3, 3 + 8 * MAXIMUM_BEATS + 1),
        Kind.LLP_REQUEST: (8,),
        Kind.LLP_RELEASE: (6,),
        Kind.LLP_EVENTS_TAKEN: (1,),
    }

    def __init__(
        self,
        endpoint: Endpoint,
        memory: MappedMemory,
        interrupt: Callable[[int], None],
        access_seconds: float = ACCESS_SECONDS,
        *,
        selector: selectors.BaseSelector,
        events: int,
        record: bool = False,
    ):
        super().__init__(endpoint, memory, interrupt, access_seconds)
        self.llp = KernelLlp(selector, self._send_event, events, record)

    def take(self, kind: int, payload: bytes) -> None:
        """Does what a message asks for. Raises `TransportError` if no device sends such a one."""
        super().take(kind, payload)
        number = int.from_bytes(payload[:2], "little")
        match kind:
            case Kind.LLP_SEND:
                self.llp.take_send(number, payload[2:-1], payload[-1])
            case Kind.LLP_REQUEST:
                position = int.from_bytes(payload[2:6], "little")
                octets = octets_of(kind, payload[6:8])
                self.endpoint.send(Kind.LLP_DATA, self.llp.answer_request(number, position, octets))
            case Kind.LLP_RELEASE:
                self.llp.take_release(number, int.from_bytes(payload[2:6], "little"))
            case Kind.LLP_EVENTS_TAKEN:
                self.llp.take_taken(payload[0])

    def _send_event(self, connection: int, kind: int, value: int) -> None:
        payload = connection.to_bytes(2, "little") + bytes([kind]) + value.to_bytes(4, "little")
        self.endpoint.send(Kind.LLP_EVENT, payload)

    def deadline(self) -> float | None:
        """When a connection has something to do."""
        return self.llp.deadline()

    def ready(self, data: object, events: int) -> None:
        """The socket of a connection can be read or written."""
        assert isinstance(data, int)
        self.llp.ready(data, events)

    def serve(self) -> None:
        """Says what connections have to say; ends what is to end."""
        self.llp.serve()

    def leave(self, seconds: float) -> None:
        """Has all streams end."""
        for number in self.llp.attached:
            self.llp.detach(number, seconds, lambda flushed: None)

    @property
    def left(self) -> bool:
        """Whether no connection has a stream."""
        return not self.llp.attached

    def close(self) -> None:
        """Ends all streams, without waiting."""
        self.llp.close()
