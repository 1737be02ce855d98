"""Two engines joined by a link, in simulated time, whose device is the test."""

from collections import deque
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any

from stagecoach.host_driver.transport.network import Established
from stagecoach.sim.llp_messages import LlpMessage
from stagecoach.sim.network.engine import Engine, EngineSettings

DELAY = 10
ADDRESSES = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")
MACS = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
KIB = 1 << 10


class Side:
    """An engine, and the device's end of its LLP port.

    Attributes
    ----------
    messages: to the device, as they came. sent: frames. lost: whether a frame, by its number, is.
    """

    def __init__(self, number: int, **changes: Any) -> None:
        values: dict[str, Any] = {
            "mac": MACS[number],
            "mtu": 1500,
            "rx_ring": 128 * KIB,
            "tx_ring": 128 * KIB,
            "rto_minimum": 1000,
            "maximum_connections": 4,
        }
        self.messages: list[tuple[LlpMessage, int, int, bytes]] = []
        self.sent: list[bytes] = []
        self.flying: deque[tuple[int, bytes]] = deque()
        self.lost: Callable[[int], bool] = lambda number: False
        self.now = 0
        self.engine = Engine(EngineSettings(**{**values, **changes}), self._send, self._post)

    def _send(self, frame: bytes) -> None:
        self.sent.append(frame)
        if not self.lost(len(self.sent)):
            self.flying.append((self.now + DELAY, frame))

    def _post(self, *message: Any) -> None:
        self.messages.append(message)

    def told(self, kind: LlpMessage) -> list[int]:
        """The values of messages of a kind."""
        return [value for each, _, value, _ in self.messages if each is kind]

    @property
    def received(self) -> bytes:
        """Octets that the device got."""
        return b"".join(octets for kind, _, _, octets in self.messages if kind is LlpMessage.DATA)

    def say(self, kind: LlpMessage, lane: int = 3, value: int = 0, octets: bytes = b"") -> None:
        """The device says something."""
        self.engine.take_message(self.now, kind, lane, value, octets)


class Link:
    """Both sides, joined."""

    def __init__(self, **changes: Any) -> None:
        self.sides = Side(0, **changes), Side(1, **changes)

    def establish(self, port: int = 4420, **changes: Any) -> list[int]:
        """A connection that both have; returns its handles."""
        ends = (ADDRESSES[0], 40000), (ADDRESSES[1], port)
        firsts = 0xFFFFFF00, 0x7FFFFFF0
        handles = []
        for number, side in enumerate(self.sides):
            other = 1 - number
            values: dict[str, Any] = {
                "local": ends[number],
                "remote": ends[other],
                "local_mac": MACS[number],
                "remote_mac": MACS[other],
                "next_sent": firsts[number],
                "next_received": firsts[other],
                "window": 65535,
                "update": (firsts[other] - 1, firsts[number]),
                "send_shift": 2,
                "receive_shift": 2,
                "receive_window": 65535,
                "maximum_segment_size": 1460,
                "selective_acknowledgments": True,
                "round_trip_us": 2 * DELAY,
                "syn_lost": False,
                "dscp": 0,
                "ttl": 64,
                **changes,
            }
            handles.append(side.engine.establish(side.now, Established(**values), ()))
        return handles

    def attached(self, lane: int = 3) -> list[int]:
        """A connection whose streams the devices have."""
        handles = self.establish()
        for side, handle in zip(self.sides, handles, strict=True):
            side.engine.attach(side.now, handle, lane)
        return handles

    def run(self, until: int) -> None:
        """Let the time go on."""
        while True:
            times = [side.flying[0][0] for side in self.sides if side.flying]
            times += [
                due for side in self.sides if (due := side.engine.next_deadline()) is not None
            ]
            due = min(times, default=until + 1)
            now = min(max(due, self.sides[0].now), until)
            for side in self.sides:
                side.now = now
            if due > until:
                return
            for side, other in (self.sides, self.sides[::-1]):
                while side.flying and side.flying[0][0] <= now:
                    other.engine.take_frame(now, side.flying.popleft()[1])
                side.engine.timer(now)
