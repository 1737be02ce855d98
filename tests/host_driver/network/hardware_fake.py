"""A `FakePort` that is a `HardwarePort` on a NIC in Python, for tests that are written for either.

Its engine is the reference TCP. What a test says of a stream, the peer of the connection says in
frames; those of the engine are not among `sent`, as a `FakePort` has them.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from stagecoach.host_driver.network.hardware.flow import ENDS, Flow
from stagecoach.host_driver.network.hardware.frame_queues import QueueSizes
from stagecoach.host_driver.network.hardware.start import HardwareSettings
from stagecoach.host_driver.network.hardware_port import HardwarePort
from stagecoach.host_driver.network.tcp import Flag, Segment
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.network import Ended, Established
from stagecoach.hw.interface.network_entries import HeaderRow, NetworkFlags, NetworkKind
from tests.host_driver.network.fake_engine import EngineConnection
from tests.host_driver.network.fake_nic import FakeNic
from tests.host_driver.network.rig import OWN_MAC, segment_frame

RING = 1 << 18
QUEUES = QueueSizes(queue_log2=11, slots_log2=10)
KINDS = {how: kind for kind, how in ENDS.items()} | {
    StreamEnd.CLOSED: NetworkKind.CLOSED,
    StreamEnd.ABORTED: NetworkKind.ABORTED,
}


class HardwareStream:
    """An `EngineStream`: what is read is that of the engine, what is set comes from the peer."""

    def __init__(self, port: "HardwareFake", flow: Flow, engine: EngineConnection, early: Any):
        self.established: Established = flow.established
        self.early = early
        self._port, self._flow, self._engine = port, flow, engine

    def _arrives(self, flags: int, data: bytes = b"") -> None:
        record = self._engine.tcp.record
        sent, received = record.sender.number(record.sender.max), record.receiver.next_sequence
        ends = self.established.remote, self.established.local
        segment = Segment(*ends, received, sent, flags | Flag.ACK, 502, b"", data)
        self._port.nic.frame(segment_frame(segment))

    @property
    def received(self) -> bytearray:
        if self.attached is not None:
            return self._engine.device
        return bytearray(self._engine.tcp.record.receiver.unread)

    @received.setter
    def received(self, octets: bytearray) -> None:
        self._arrives(Flag.PSH, bytes(octets[len(self.received) :]))

    @property
    def peer_closed(self) -> bool:
        return self._engine.tcp.record.receiver.fin_taken

    @peer_closed.setter
    def peer_closed(self, closed: bool) -> None:
        assert closed
        self._arrives(Flag.FIN)

    @property
    def sent(self) -> bytearray:
        sender = self._engine.tcp.record.sender
        return bytearray(self._flow.tx.read(self.established.next_sent, sender.end))

    @sent.setter
    def sent(self, octets: bytearray) -> None:
        self._port.send(self._flow.handle, bytes(octets[len(self.sent) :]))

    @property
    def in_flight(self) -> int:
        return self._port.info(self._flow.handle).in_flight

    @in_flight.setter
    def in_flight(self, octets: int) -> None:
        assert octets == self.in_flight

    @property
    def segments_received(self) -> int:
        return self._port.info(self._flow.handle).segments_received

    @segments_received.setter
    def segments_received(self, count: int) -> None:
        for _ in range(count - self.segments_received):
            self._arrives(0)

    @property
    def shut(self) -> bool:
        return self._engine.tcp.record.sender.closing

    @property
    def attached(self) -> int | None:
        return self._engine.lane

    @property
    def macs(self) -> list[bytes]:
        mac = self._engine.rows[HeaderRow.DESTINATION][:6]
        return [] if mac == self.established.remote_mac else [mac]

    @property
    def fields(self) -> list[tuple[int, int]]:
        row = self._engine.rows[HeaderRow.FIELDS]
        found = row[4] >> 2, row[5]
        return [] if found == (self.established.dscp, self.established.ttl) else [found]

    @property
    def segment_sizes(self) -> list[int]:
        size = self._engine.tcp.emss
        return [] if size == self.established.maximum_segment_size else [size]


class HardwareFake(HardwarePort):
    """The port; see `FakePort` for what tests use of it."""

    def __init__(
        self, maximum_connections: int = 16, mac: bytes = OWN_MAC, nic: FakeNic | None = None
    ):
        self.nic = nic or FakeNic(maximum_connections)
        self.sent: list[bytes] = []
        self.waits = 0
        self.peer: Callable[[bytes], None] | None = None
        self.streams: dict[int, HardwareStream] = {}
        super().__init__(self.nic, HardwareSettings(mac, RING, RING, queues=QUEUES))

    @property
    def now(self) -> int:
        return self.nic.now

    @now.setter
    def now(self, now: int) -> None:
        self.nic.run_to(now)

    @property
    def carrier(self) -> str:
        return self.nic.carrier

    @carrier.setter
    def carrier(self, carrier: str) -> None:
        self.nic.carrier = carrier

    @property
    def refused(self) -> dict[str, int]:
        return self.nic.refused

    @property
    def may_pass(self) -> Callable[[], bool]:
        return self.nic.may_pass

    @may_pass.setter
    def may_pass(self, may_pass: Callable[[], bool]) -> None:
        self.nic.may_pass = may_pass

    @property
    def doubtful(self) -> deque[int]:
        return self._doubtful

    @doubtful.setter
    def doubtful(self, handles: deque[int]) -> None:
        assert handles is self._doubtful

    def frame(self, octets: bytes) -> None:
        self.nic.frame(octets)

    def close(self, why: str = "the device was closed") -> None:
        super().close(why)
        self.nic.close(why)

    def tell(self) -> None:
        self.wake()

    def wait(self, until_us: int | None) -> None:
        self.waits += 1
        super().wait(until_us)

    def send_frame(self, frame: bytes) -> bool:
        taken = super().send_frame(frame)
        if taken:
            self.sent.append(frame)
            if self.peer is not None:
                self.peer(frame)
        return taken

    def establish(self, connection: Established, early: tuple[bytes, ...] = ()) -> int:
        handle = super().establish(connection, early)
        flow = self._flows[handle]
        self.streams[handle] = HardwareStream(self, flow, self.nic.engine[flow.number], early)
        return handle

    def end(
        self,
        handle: int,
        how: StreamEnd,
        *,
        closed_first: bool = False,
        peer_closed: bool = False,
    ) -> Ended:
        """The engine forgets a connection, and says why."""
        stream = self.streams[handle]
        kind = NetworkKind.TIME_WAIT if closed_first else KINDS[how]
        engine = stream._engine
        record = engine.tcp.record
        engine.over = True
        flags = NetworkFlags.FIN if peer_closed else NetworkFlags(0)
        numbers = record.sender.number(record.sender.max), record.receiver.next_sequence
        received = (numbers[1] + peer_closed) % 2**32
        self.nic.notice(kind, engine.number, numbers[0], received, flags)
        return Ended(handle, how, numbers[0], received, closed_first, peer_closed)
