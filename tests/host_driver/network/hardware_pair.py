"""Two NICs with a `HardwarePort` each on one wire, in time that the test makes."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

from stagecoach.host_driver.network.hardware.start import HardwareSettings
from stagecoach.host_driver.network.hardware_port import HardwarePort
from stagecoach.host_driver.transport.network import Established
from tests.host_driver.network.fake_nic import FakeNic

MACS = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
ADDRESSES = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")
RING = 1 << 17
FIRST = (0xFFFFFF00, 0x0001FFF0)
"""First octets of the two ends: one is near the wrap of numbers, one near that of a ring."""


def established(end: int, port: int = 4000, **changes: Any) -> Established:
    """The connection from port 4000 of end 0 to 4420 of end 1, as one of them sees it."""
    ends = (ADDRESSES[0], port), (ADDRESSES[1], 4420)
    there = 1 - end
    fields: dict[str, Any] = {
        "local": ends[end],
        "remote": ends[there],
        "local_mac": MACS[end],
        "remote_mac": MACS[there],
        "next_sent": FIRST[end],
        "next_received": FIRST[there],
        "window": 65535,
        "update": (FIRST[there] - 1, FIRST[end]),
        "send_shift": 2,
        "receive_shift": 2,
        "receive_window": 65535,
        "maximum_segment_size": 1460,
        "selective_acknowledgments": True,
        "round_trip_us": 1000,
        "syn_lost": False,
        "dscp": 0,
        "ttl": 64,
    }
    return Established(**fields | changes)


class Pair:
    """Ends 0 and 1.

    Attributes
    ----------
    loses: which frames the wire loses. passed: those that passed it.
    """

    def __init__(self, **changes: Any) -> None:
        self.nics = FakeNic(), FakeNic(unaligned=0)
        self.loses: Callable[[bytes], bool] = lambda frame: False
        self.passed: list[bytes] = []
        self._under_way: deque[tuple[int, bytes]] = deque()
        settings = HardwareSettings(MACS[0], RING, RING, rto_minimum=10_000)
        self.ports = tuple(
            HardwarePort(nic, replace(settings, mac=mac, **changes))
            for nic, mac in zip(self.nics, MACS, strict=True)
        )
        for end, nic in enumerate(self.nics):
            nic.wire = lambda frame, there=1 - end: self._under_way.append((there, frame))

    def run(self, microseconds: int = 0) -> None:
        """Carry frames, and let the time go on if nothing is under way."""
        until = self.nics[0].now + microseconds
        while True:
            while self._under_way:
                there, frame = self._under_way.popleft()
                if not self.loses(frame):
                    self.passed.append(frame)
                    self.nics[there].frame(frame)
            dues = [nic.deadline for nic in self.nics if nic.deadline is not None]
            due = min(dues, default=until)
            for nic in self.nics:
                nic.run_to(min(due, until))
            if not self._under_way and due >= until:
                return

    def joined(self, port: int = 4000, **changes: Any) -> tuple[int, int]:
        """The handles of an established connection."""
        here, there = (
            end.establish(established(number, port, **changes))
            for number, end in enumerate(self.ports)
        )
        return here, there
