"""A host with the reference TCP in simulated time, and the packets that it sent."""

from collections import deque
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Interface
from typing import Any, Protocol

from stagecoach.sim.model.tcp.host import Host
from stagecoach.sim.model.tcp.malformed import MalformedError
from stagecoach.sim.model.tcp.segment import decode_packet
from stagecoach.sim.model.tcp.state import Settings
from tools.packetdrill.trace import Recorder

LOCAL = IPv4Interface("192.0.2.2/24")
REMOTE = IPv4Address("192.0.2.1")
# What scripts expect of Linux and the RFCs leave open: a window scale of 8, an ACK for each segment
# at the start of a connection; and the shortest retransmission timeout of Linux.
SETTINGS = Settings(receive_buffer=0xFFFF << 8, rto_minimum=200_000, delayed_ack=0, nagle=True)
START_US = 1_000_000_000
_KEY = bytes(range(16))
# More timeouts than this at one moment are a fault of the host.
_TIMEOUTS_MAX = 1000


class AnyWorld(Protocol):
    """What `Server` and `Sockets` need of a `World`."""

    host: Any
    recorder: Recorder
    sent: deque[tuple[int, bytes]]

    @property
    def now(self) -> int: ...

    def packet_arrives(self, octets: bytes) -> None: ...

    def settle(self) -> None: ...

    def step(self, until: int) -> None: ...

    def close(self) -> None: ...


class World:
    """Time in microseconds; it moves by ``step`` alone."""

    def __init__(self, recorder: Recorder) -> None:
        self._now = START_US
        self.host = Host(LOCAL, _KEY, SETTINGS)
        self.recorder = recorder
        # When each packet left that nobody looked at so far.
        self.sent: deque[tuple[int, bytes]] = deque()

    @property
    def now(self) -> int:
        """The time."""
        return self._now

    def close(self) -> None:
        """Nothing is left of it."""

    def packet_arrives(self, octets: bytes) -> None:
        """The peer's packet arrives now."""
        with suppress(MalformedError):
            self.recorder.arrives(self.now, decode_packet(octets)[1])
        self.host.packet_arrives(self.now, octets)

    def settle(self) -> None:
        """Do what is due now, and collect what is sent."""
        for _ in range(_TIMEOUTS_MAX):
            self._collect()
            deadline = self.host.next_deadline()
            if deadline is None or deadline > self.now:
                return
            self.host.timer(self.now)
        raise RuntimeError(f"{_TIMEOUTS_MAX} timeouts at {self.now} us")

    def step(self, until: int) -> None:
        """Go on to the next timeout, at most to ``until``."""
        deadline = self.host.next_deadline()
        self._now = until if deadline is None else min(deadline, until)
        self.settle()

    def _collect(self) -> None:
        for octets in self.host.take_packets():
            self.sent.append((self.now, octets))
            self.recorder.leaves(self.now, decode_packet(octets)[1])
