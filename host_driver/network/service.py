"""All parts of a network, joined; `serve` does what there is to do, and waits for nothing."""

import struct
from collections import Counter, deque
from ipaddress import IPv4Address

from stagecoach.host_driver.network.address_claim import (
    RFC_5227,
    AddressClaim,
    ClaimState,
    ProbeTimes,
)
from stagecoach.host_driver.network.connections import Connections
from stagecoach.host_driver.network.echo import Echo
from stagecoach.host_driver.network.ethernet import EtherType, Frame
from stagecoach.host_driver.network.input import Input
from stagecoach.host_driver.network.ipv4 import Protocol
from stagecoach.host_driver.network.neighbours import Neighbours
from stagecoach.host_driver.network.output import Output
from stagecoach.host_driver.network.settings import NetworkSettings
from stagecoach.host_driver.network.time_wait import Ends
from stagecoach.host_driver.network.turn import Turn
from stagecoach.host_driver.transport.network import ETHERNET_HEADER_OCTETS

BATCH = 64
"""Frames of one pass; threads that wait come in between."""

# Of an IPv4 header without options: protocol, source, destination; then the ports.
_ENDS = struct.Struct(">9xB2x4s4sHH")


class Service:
    """One interface; under the lock of `turn`.

    Parameters
    ----------
    times: of the probes for its address.

    Attributes
    ----------
    counters: by name, of all parts. claim, neighbours, echo, connections: the parts.
    unreachable: neighbours that did not answer, the newest last.
    """

    def __init__(self, turn: Turn, settings: NetworkSettings, times: ProbeTimes = RFC_5227):
        self._turn = turn
        self._port = turn.port
        now_us = self._port.now_us
        self.settings = settings
        self.counters: Counter[str] = Counter()
        # Taken from the port while an earlier frame was looked at.
        self._frames: deque[bytes] = deque()
        self._answers = False  # the device was told that it may
        self.unreachable: deque[IPv4Address] = deque(maxlen=BATCH)
        self.claim = AddressClaim(settings, self._send, now_us(), times)
        self.neighbours = Neighbours(
            *(settings, self._send, self._unreachable, self._conflict, self._heard),
            self.counters,
        )
        output = Output(settings, self.neighbours, self._send, now_us)
        self.echo = Echo(output.icmp, self.counters)
        self.connections = Connections(turn, settings, output, self.counters, self._take_early)
        parts = self.claim, self.neighbours, self.echo, self.connections
        self._input = Input(settings, output, *parts, self.counters)

    def serve(self) -> int | None:
        """Frames, ends of connections and timers; returns when it has to be called again.

        At once if there was more than one batch.
        """
        with self._turn.lock:
            now_us = self._port.now_us()
            self.take_ended(now_us)
            while (handle := self._port.take_doubtful()) is not None:
                self.connections.engine.doubtful(handle)
            frames = 0
            while frames < BATCH and (frame := self._next_frame()) is not None:
                frames += 1
                # The engine may have forgotten a connection before it left this frame here.
                self.take_ended(now_us)
                self._input.receive(frame, now_us)
            for part in (self.claim, self.neighbours, self.connections):
                part.tick(now_us)
            if self.claim.state is ClaimState.CLAIMED and not self._answers:
                self._answers = True
                self._port.answer(self.settings.own)
            self._turn.notify()
            if frames == BATCH:
                return now_us
            return self._next_us(now_us)

    def _next_us(self, now_us: int) -> int | None:
        parts = self.claim, self.neighbours, self.connections
        times = [*(part.next_us for part in parts), self._turn.next_us(now_us)]
        return min((each for each in times if each is not None), default=None)

    def _next_frame(self) -> bytes | None:
        return self._frames.popleft() if self._frames else self._port.receive_frame()

    def take_ended(self, now_us: int) -> bool:
        """Take the ends of connections that are there; whether there were any."""
        found = False
        while (ended := self._port.take_ended()) is not None:
            self.connections.ended(ended, now_us)
            found = True
        return found

    def _take_early(self, ends: Ends) -> tuple[bytes, ...]:
        """Frames of a connection that came before the engine has it, in order."""
        while len(self._frames) < BATCH and (frame := self._port.receive_frame()) is not None:
            self._frames.append(frame)
        early = tuple(frame for frame in self._frames if _ends(frame) == ends)
        if early:
            rest = [frame for frame in self._frames if _ends(frame) != ends]
            self._frames.clear()
            self._frames.extend(rest)
        return early

    def _send(self, frame: Frame) -> None:
        if not self._port.send_frame(frame.encode()):
            self.counters["frames_not_sent"] += 1

    def _unreachable(self, neighbour: IPv4Address) -> None:
        self.unreachable.append(neighbour)
        self.connections.openings.unreachable(neighbour)

    def _heard(self, neighbour: IPv4Address, mac: bytes) -> None:
        self.connections.engine.follow(neighbour, mac)

    def _conflict(self, mac: bytes) -> None:
        if self.claim.conflict(self._port.now_us()):
            self.counters["address_defended"] += 1
        self.claim.other = mac


def _ends(frame: bytes) -> Ends | None:
    """Local and remote end of a frame if it looks like one of TCP; the engine checks the rest."""
    packet = frame[ETHERNET_HEADER_OCTETS:]
    if len(packet) < _ENDS.size or packet[0] != 0x45:
        return None
    protocol, source, destination, source_port, destination_port = _ENDS.unpack_from(packet)
    kind = int.from_bytes(frame[12:14])
    if kind != EtherType.IPV4 or protocol != Protocol.TCP:
        return None
    return (IPv4Address(destination), destination_port), (IPv4Address(source), source_port)
