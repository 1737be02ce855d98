"""The own address: probed before it is used, announced, and defended (RFC 5227)."""

import enum
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address

from stagecoach.host_driver.network.arp import UNSPECIFIED, ArpPacket, Operation
from stagecoach.host_driver.network.ethernet import BROADCAST, NO_MAC, EtherType, Frame
from stagecoach.host_driver.network.settings import SECOND_US, NetworkSettings

PROBES = 3
ANNOUNCEMENTS = 2
ANNOUNCE_INTERVAL_US = 2 * SECOND_US
DEFEND_INTERVAL_US = 10 * SECOND_US


@dataclass(frozen=True)
class ProbeTimes:
    """Microseconds: at most before the first probe, between two of them, after the last one."""

    wait: int
    minimum: int
    maximum: int
    announce_wait: int


RFC_5227 = ProbeTimes(SECOND_US, SECOND_US, 2 * SECOND_US, 2 * SECOND_US)
"""Section 1.1: 4 to 7 seconds."""

SHORT = ProbeTimes(0, SECOND_US // 10, SECOND_US // 10, SECOND_US // 10)
"""0.3 seconds, for a link without slow bridges; as Linux waits for IPv6 with fewer probes."""


class ClaimState(enum.Enum):
    """What may be done with the address."""

    PROBING = "probing"
    CLAIMED = "claimed"
    DUPLICATE = "duplicate"


class AddressClaim:
    """Claims the address of `settings`, from `now_us` on.

    Parameters
    ----------
    send: sends a frame. times: of the probes. draw: a random number below its argument.

    Attributes
    ----------
    state: nothing but ARP may be sent while probing. other: MAC address of the interface that has
        it, if there is one.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        send: Callable[[Frame], None],
        now_us: int,
        times: ProbeTimes = RFC_5227,
        draw: Callable[[int], int] = secrets.randbelow,
    ):
        self._settings = settings
        self._send = send
        self._times = times
        self._draw = draw
        self.state = ClaimState.PROBING
        self.other: bytes | None = None
        self._probes = 0
        self._announcements = 0
        self._defended_us: int | None = None
        self.next_us: int | None = now_us + draw(times.wait + 1)

    def tick(self, now_us: int) -> None:
        """Probe, claim, or announce, if it is time."""
        if self.next_us is None or now_us < self.next_us:
            return
        if self.state is ClaimState.PROBING and self._probes < PROBES:
            self._probes += 1
            self._ask(UNSPECIFIED)
            spread = self._times.maximum - self._times.minimum
            last = self._probes == PROBES
            pause = self._times.minimum + self._draw(spread + 1)
            self.next_us = now_us + (self._times.announce_wait if last else pause)
            return
        self.state = ClaimState.CLAIMED
        self._announcements += 1
        self._ask(self._settings.own)
        more = self._announcements < ANNOUNCEMENTS
        self.next_us = now_us + ANNOUNCE_INTERVAL_US if more else None

    def receive_probing(self, packet: ArpPacket) -> None:
        """Take a packet while probing: a host has the address, or probes it too (2.1.1).

        Who claims it may have the same MAC address, which often follows from the IP address. A
        probe with that may be one of ours that the link brought back.
        """
        own = self._settings.own
        claims = packet.sender == own
        probes = packet.sender == UNSPECIFIED and packet.target == own
        if claims or (probes and packet.sender_mac != self._settings.mac):
            self.state, self.other, self.next_us = ClaimState.DUPLICATE, packet.sender_mac, None

    def conflict(self, now_us: int) -> bool:
        """A host claims the address that is in use: defend it, not too often (2.4).

        Returns whether it was.
        """
        last = self._defended_us
        if last is not None and now_us - last < DEFEND_INTERVAL_US:
            return False
        self._defended_us = now_us
        self._ask(self._settings.own)
        return True

    def _ask(self, sender: IPv4Address) -> None:
        mac, own = self._settings.mac, self._settings.own
        packet = ArpPacket(Operation.REQUEST, mac, sender, NO_MAC, own)
        self._send(Frame(BROADCAST, mac, EtherType.ARP, packet.encode()))
