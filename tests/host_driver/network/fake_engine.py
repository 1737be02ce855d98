"""A connection of a fake NIC: the reference TCP between rings in memory and frames.

Written after `hw/interface`: what the driver wrote to registers and rows is all that is known.
"""

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address

from stagecoach.hw.interface.network_entries import (
    CONNECTION_INFO,
    HeaderRow,
    InfoFlags,
    NetworkFlags,
    NetworkKind,
)
from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.adoption import Adoption
from stagecoach.sim.model.tcp.checksum import ones_complement_sum
from stagecoach.sim.model.tcp.connection import Connection
from stagecoach.sim.model.tcp.record import SENDING
from stagecoach.sim.model.tcp.segment import Flags, Segment, encode_packet
from stagecoach.sim.model.tcp.state import Cause, Settings, State

SPACE = 1 << 32

KINDS = {
    Cause.CLOSED: NetworkKind.CLOSED,
    Cause.ABORTED: NetworkKind.ABORTED,
    Cause.RESET: NetworkKind.RESET,
    Cause.TIMED_OUT: NetworkKind.TIMED_OUT,
    Cause.DATA_LOST: NetworkKind.DATA_LOST,
}

Memory = Callable[[int, int], memoryview]
"""Bytes that the driver has mapped: address, and how many."""

Notice = Callable[[NetworkKind, int, int, int, NetworkFlags], None]
"""Kind, connection, SND.MAX, RCV.NXT, flags."""


@dataclass
class Ring:
    """Bytes of memory, addressed by sequence number."""

    memory: Memory
    address: int
    size: int

    @property
    def octets(self) -> int:
        return 1 << (17 + self.size)

    def _turned(self, number: int, count: int) -> list[memoryview]:
        """The octets at a number, in two parts if they go past the end."""
        view, place = self.memory(self.address, self.octets), number % self.octets
        return [view[place : place + count], view[: max(0, place + count - self.octets)]]

    def read(self, number: int, count: int) -> bytes:
        return b"".join(bytes(part) for part in self._turned(number, count))

    def write(self, number: int, data: bytes) -> None:
        for part in self._turned(number, len(data)):
            part[:], data = data[: len(part)], data[len(part) :]


@dataclass
class Counts:
    """Segments of a number: that came, that left, and those of them that had left before."""

    received: int
    sent: int
    again: int

    def words(self) -> list[int]:
        """As INFO tells them."""
        return [each % SPACE for each in (self.received, self.sent, self.again)]


@dataclass
class Begin:
    """What ESTABLISH found in the staging registers."""

    local: tuple[IPv4Address, int]
    remote: tuple[IPv4Address, int]
    send_next: int
    window: int
    window_from: int
    receive_next: int
    receive_edge: int
    cwnd: int
    srtt8: int
    rttvar4: int
    rto: int
    sampled: bool
    send_shift: int
    receive_shift: int
    emss: int


class EngineConnection:
    """One of them.

    Attributes
    ----------
    lane: LLP connection that has the stream. reads: whether the device does; device: what it has.
    """

    reads = True
    forgotten = False

    def __init__(
        self,
        now: int,
        number: int,
        begin: Begin,
        rows: dict[HeaderRow, bytes],
        rings: tuple[Ring, Ring],
        settings: Settings,
        notice: Notice,
        counts: Counts,
    ) -> None:
        self.number, self.begin, self.rows = number, begin, rows
        self.rx, self.tx = rings
        selective = bool(rows[HeaderRow.FIELDS][6] & 128)
        assert rows[HeaderRow.FIELDS][6] & 127 == begin.receive_shift
        adoption = Adoption(
            remote=begin.remote,
            next_sent=begin.send_next,
            next_received=begin.receive_next,
            window=begin.window,
            window_from=begin.window_from,
            send_shift=begin.send_shift,
            receive_shift=begin.receive_shift,
            receive_window=sequence.distance(begin.receive_edge, begin.receive_next),
            smss=begin.emss,
            sack=selective,
            round_trip=None,
            syn_losses=0,
        )
        self.tcp = Connection.adopted(now, begin.local, adoption, settings)
        sender = self.tcp.record.sender
        sender.congestion.cwnd = begin.cwnd
        sender.rto.initial = begin.srtt8 >> 3
        if begin.sampled:
            sender.rto.srtt8, sender.rto.rttvar4 = begin.srtt8, begin.rttvar4
        assert sender.rto.microseconds == begin.rto
        self.lane: int | None = None
        self.device = bytearray()
        self.over = False
        self._notice = notice
        self._counts, self._sent_up_to = counts, begin.send_next
        self._stored = begin.receive_next
        self._told = begin.receive_next, False
        self._suspect = False

    @property
    def _released(self) -> int:
        receiver = self.tcp.record.receiver
        return sequence.add(self._data_end, -len(receiver.unread))

    @property
    def _data_end(self) -> int:
        receiver = self.tcp.record.receiver
        return sequence.add(receiver.next_sequence, -int(receiver.fin_taken))

    # Commands.

    def segment(
        self, now: int, numbers: tuple[int, int], control: int, window: int, octets: int
    ) -> None:
        payload = self.rx.read(numbers[0], octets)
        ports = self.begin.remote[1], self.begin.local[1]
        segment = Segment(*ports, *numbers, Flags(control), window, payload)
        self.arrives(now, segment)

    def arrives(self, now: int, segment: Segment) -> None:
        self._counts.received += 1
        self.tcp.segment_arrives(now, segment, self.begin.remote[0])

    def send(self, now: int, octets: int) -> None:
        if self.over or self.tcp.state not in SENDING or self.tcp.record.sender.closing:
            return
        sender = self.tcp.record.sender
        data = self.tx.read(sender.number(sender.end), octets)
        assert sender.queued + octets <= self.tx.octets
        self.tcp.send(now, data)

    def release(self, now: int, octets: int) -> None:
        unread = self.tcp.record.receiver.unread
        assert octets <= len(unread), "released what has not come"
        if self.over:
            del unread[:octets]
        else:
            self.tcp.receive(now, octets)

    def attach(self, lane: int, receive_next: int) -> None:
        assert receive_next == self._released
        self.lane = lane

    def close(self, now: int) -> None:
        if self.tcp.state in SENDING and not self.tcp.record.sender.closing:
            self.tcp.close(now)

    def abort(self, now: int) -> None:
        if not self.over:
            self.tcp.abort(now)

    def information(self) -> list[int]:
        """In the order of CONNECTION_INFO."""
        record = self.tcp.record
        sender, receiver = record.sender, record.receiver
        flags = InfoFlags.ALIVE * (not self.over) | InfoFlags.ATTACHED * (self.lane is not None)
        flags |= InfoFlags.CLOSING * sender.closing | InfoFlags.PEER_FIN * receiver.fin_taken
        flags |= InfoFlags.FIN_ACKNOWLEDGED * sender.fin_acknowledged
        flags |= InfoFlags.SAMPLED * (sender.rto.srtt8 is not None)
        words = {
            "una": sender.number(sender.una),
            "next": sender.number(sender.next),
            "max": sender.number(sender.max),
            "end": sender.number(sender.end),
            "window": sender.window,
            "cwnd": sender.congestion.cwnd,
            "ssthresh": sender.congestion.ssthresh,
            "srtt8": sender.rto.srtt8 or 8 * sender.rto.initial,
            "rttvar4": sender.rto.rttvar4,
            "rto": sender.rto.microseconds,
            "emss": sender.smss,
            "flags": int(flags),
            "received": receiver.next_sequence,
            "edge": sequence.add(receiver.next_sequence, receiver.window),
        }
        return [words[field.name] for field in CONNECTION_INFO if field.name in words]

    # What follows from an event.

    def serve(self, now: int) -> list[bytes]:
        """Store what came, tell of it, and return the frames that are sent."""
        receiver = self.tcp.record.receiver
        new = sequence.distance(self._data_end, self._stored)
        if new > 0:
            unread = receiver.unread
            self.rx.write(self._stored, bytes(unread[len(unread) - new :]))
            self._stored = self._data_end
        if self.reads and self.lane is not None and receiver.unread:
            # The device reads, and releases, all there is.
            self.device += self.rx.read(self._released, len(receiver.unread))
            self.release(now, len(receiver.unread))
        frames = [self._frame(segment) for segment in self.tcp.output]
        self.tcp.output.clear()
        if self.over:
            return frames
        state = receiver.next_sequence, receiver.fin_taken
        suspect, self._suspect = self._suspect, self.tcp.suspect
        if self._suspect and not suspect:
            self._tell(NetworkKind.SUSPECT)
        if self.tcp.state in (State.CLOSED, State.TIME_WAIT):
            self.over = True
            cause = self.tcp.cause
            self._tell(NetworkKind.TIME_WAIT if cause is None else KINDS[cause])
        elif state != self._told and self.lane is None:
            self._tell(NetworkKind.READABLE)
        self._told = state
        return frames

    def _tell(self, kind: NetworkKind) -> None:
        record = self.tcp.record
        flags = NetworkFlags.FIN if record.receiver.fin_taken else NetworkFlags(0)
        numbers = record.sender.number(record.sender.max), record.receiver.next_sequence
        self._notice(kind, self.number, *numbers, flags)

    def _count(self, segment: Segment) -> None:
        end = sequence.add(segment.sequence, segment.length)
        if segment.length and sequence.before(segment.sequence, self._sent_up_to):
            self._counts.again += 1
        else:
            self._counts.sent += 1
        if sequence.before(self._sent_up_to, end):
            self._sent_up_to = end

    def _frame(self, segment: Segment) -> bytes:
        """Of what the rows say: whoever wrote them wrong sends wrong frames."""
        self._count(segment)
        words = b"".join(self.rows[row] for row in (HeaderRow.DESTINATION, HeaderRow.SOURCE))
        ends = self.rows[HeaderRow.ADDRESSES][2:] + self.rows[HeaderRow.PORTS][:6]
        local, remote = IPv4Address(ends[:4]), IPv4Address(ends[4:8])
        ports = ends[8:]
        assert ports == segment.source_port.to_bytes(2) + segment.destination_port.to_bytes(2)
        fields = self.rows[HeaderRow.FIELDS]
        service, ttl = fields[4], fields[5]
        packet = encode_packet(segment, local, remote, service >> 2, ttl)
        # The engine adds the length, and the rest of the segment, to the driver's sums.
        header = packet[:2] + bytes(2) + packet[4:10] + bytes(2) + packet[12:20]
        assert int.from_bytes(fields[:2], "little") == ones_complement_sum(header)
        tcp = int.from_bytes(fields[2:4], "little")
        assert tcp == ones_complement_sum(ends + bytes((0, 6)))
        return (words[:12] + b"\x08\x00" + packet).ljust(60, b"\0")
