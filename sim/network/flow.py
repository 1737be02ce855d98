"""One connection of the engine: the reference TCP, and the LLP port if a QP has the stream."""

from collections.abc import Callable

from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import StreamClosed
from stagecoach.host_driver.transport.network import (
    ConnectionInfo,
    Ended,
    Established,
)
from stagecoach.sim.llp_messages import LlpMessage
from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.adoption import Adoption
from stagecoach.sim.model.tcp.connection import Connection
from stagecoach.sim.model.tcp.record import SENDING
from stagecoach.sim.model.tcp.segment import Segment
from stagecoach.sim.model.tcp.state import Cause, Settings, State

Post = Callable[[LlpMessage, int, int, bytes], None]
"""Sends a message to the device: kind, LLP connection, value, bytes."""

DEVICE_RING = 1 << 20
"""Bytes of the ring of `sim/runtime/rnic/llp.h` that the device reads from."""

_PIECE = 1 << 16
_ENDS = {
    Cause.RESET: StreamEnd.RESET,
    Cause.REFUSED: StreamEnd.RESET,
    Cause.TIMED_OUT: StreamEnd.TIMED_OUT,
    Cause.KEEP_ALIVE: StreamEnd.TIMED_OUT,
    Cause.UNREACHABLE: StreamEnd.TIMED_OUT,
    Cause.ABORTED: StreamEnd.ABORTED,
    Cause.DATA_LOST: StreamEnd.ABORTED,
}


class Flow:
    """A connection. Times are microseconds; nothing here waits.

    Parameters
    ----------
    handle: of the port. established: what the driver's handshake left. tx_ring: bytes of the
        TX ring. post: sends a message to the device.

    Attributes
    ----------
    connection: of the reference model. remote_mac: of the peer or its gateway. lane: LLP connection
        that has the stream, or `None`.
    leaving, left: whether the stream is to leave the device, and whether it has. shut: whether
        this end has no more to send.
    """

    def __init__(
        self,
        now: int,
        handle: int,
        established: Established,
        settings: Settings,
        tx_ring: int,
        post: Post,
    ) -> None:
        adoption = Adoption(
            remote=established.remote,
            next_sent=established.next_sent,
            next_received=established.next_received,
            window=established.window,
            window_from=established.update[0],
            send_shift=established.send_shift,
            receive_shift=established.receive_shift,
            receive_window=established.receive_window,
            smss=established.maximum_segment_size,
            sack=established.selective_acknowledgments,
            round_trip=established.round_trip_us,
            syn_losses=int(established.syn_lost),
        )
        self.handle = handle
        self.established = established
        self.remote_mac = established.remote_mac
        self.connection = Connection.adopted(now, established.local, adoption, settings)
        self.connection.dscp, self.connection.ttl = established.dscp, established.ttl
        self.lane: int | None = None
        self.leaving = self.left = False
        self.shut = False
        self._tx_ring = tx_ring
        self._post = post
        # Of the bytes received and not taken, those that the device has; and in all what it
        # released since `attach`.
        self._given = 0
        self._released = 0
        # Position of the stream where the device's begins; what it was told is acknowledged.
        self._tx_base = 0
        self._acknowledged = 0
        self._ended_told = False
        self._doubtful = False
        self._discards = False
        self._sent_up_to = established.next_sent
        self._segments_sent = self._segments_received = 0
        self._octets_sent = self._octets_received = 0
        self._retransmissions = 0

    @property
    def over(self) -> bool:
        """Whether the engine's part has ended."""
        return self.connection.state in (State.CLOSED, State.TIME_WAIT)

    def turns_doubtful(self) -> bool:
        """Whether R1 retransmissions were not answered, and that is new."""
        before, self._doubtful = self._doubtful, self.connection.suspect
        return self._doubtful and not before

    @property
    def queued(self) -> int:
        """Bytes of the TX ring that are in use."""
        sender = self.connection.record.sender
        return sender.end - min(sender.una, sender.end)

    @property
    def unread(self) -> int:
        """Bytes received in order that nobody has taken."""
        return len(self.connection.record.receiver.unread)

    def ended(self) -> Ended:
        """How it ended."""
        record = self.connection.record
        first = record.state is State.TIME_WAIT
        cause = self.connection.cause
        how = StreamEnd.CLOSED if first or cause is None else _ENDS.get(cause, StreamEnd.CLOSED)
        numbers = record.sender.number(record.sender.max), record.receiver.next_sequence
        return Ended(self.handle, how, *numbers, first, record.receiver.fin_taken)

    # The stream before a QP has it.

    def send(self, now: int, octets: bytes) -> int:
        """Take bytes, as many as the TX ring has room for. Raises `KeyError` if it has ended."""
        if self.over:
            raise KeyError(self.handle)
        if self.shut or self.connection.state not in SENDING:
            raise StreamClosed("this end of the connection is closed")
        taken = octets[: self._tx_ring - self.queued]
        if taken:
            self.connection.send(now, taken)
        return len(taken)

    def receive(self, now: int, maximum: int) -> bytes:
        """Bytes that were received in order. Raises `KeyError` if the connection was lost."""
        if self.connection.cause not in (None, Cause.CLOSED):
            raise KeyError(self.handle)
        if not self.unread and self._at_end:
            raise StreamClosed("no byte of the connection will come any more")
        return self.connection.receive(now, maximum) if maximum else b""

    @property
    def readable(self) -> bool:
        """Whether there are bytes, or none will come."""
        return bool(self.unread) or self._at_end

    @property
    def _at_end(self) -> bool:
        return self.over or self.connection.record.receiver.fin_taken

    def shutdown(self, now: int) -> None:
        """FIN after what was sent; what the peer still sends is discarded."""
        self._discards = True
        self._close(now)

    def abort(self, now: int) -> None:
        """RST."""
        if self.connection.state is not State.CLOSED:
            self.connection.abort(now)

    def _close(self, now: int) -> None:
        if not self.shut and self.connection.state in SENDING:
            self.connection.close(now)
        self.shut = True

    # The stream of a QP.

    def attach(self, lane: int) -> None:
        """Give the stream to the device."""
        self.lane = lane
        self._tx_base = self.connection.record.sender.end
        self._post(LlpMessage.ATTACH, lane, self._tx_ring, b"")
        if self.connection.emss != self.established.maximum_segment_size:
            self._post(LlpMessage.EMSS, lane, self.connection.emss, b"")

    def leave(self) -> None:
        """Ask the device to let go of the stream; `take_message` tells when it has."""
        assert self.lane is not None
        self.leaving = True
        self._post(LlpMessage.DETACH, self.lane, 0, b"")

    def take_message(self, now: int, kind: LlpMessage, value: int, octets: bytes) -> None:
        """The device says something of its stream."""
        match kind:
            case LlpMessage.FPDU:
                if not self.shut and self.connection.state in SENDING:
                    self.connection.send(now, octets, whole=True)
            case LlpMessage.CLOSE:
                self._close(now)
            case LlpMessage.RELEASED:
                freed = value - self._released
                self._released, self._given = value, self._given - freed
                self.connection.receive(now, freed)
            case LlpMessage.DETACHED:
                self.left, self.lane = True, None
                self.shutdown(now)

    def resize(self, now: int, octets: int) -> None:
        """Segments are no longer than this from now on."""
        self.connection.resize(now, octets)
        if self.lane is not None:
            self._post(LlpMessage.EMSS, self.lane, octets, b"")

    # Segments and time.

    def arrives(self, now: int, segment: Segment) -> None:
        """A segment of the peer."""
        self._segments_received += 1
        self._octets_received += len(segment.payload)
        self.connection.segment_arrives(now, segment, self.established.remote[0])

    def take_output(self, now: int) -> list[Segment]:
        """What has to be sent, once everything that follows from the last event is done."""
        if self._discards and self.lane is None and self.unread:
            self.connection.receive(now)
        if self.lane is not None:
            self._tell_device(self.lane)
        output = list(self.connection.output)
        self.connection.output.clear()
        for segment in output:
            self._count(segment)
        return output

    def _tell_device(self, lane: int) -> None:
        unread = self.connection.record.receiver.unread
        while self._given < min(len(unread), DEVICE_RING):
            piece = bytes(unread[self._given : min(self._given + _PIECE, DEVICE_RING)])
            self._given += len(piece)
            self._post(LlpMessage.DATA, lane, 0, piece)
        sender = self.connection.record.sender
        acknowledged = min(sender.una, sender.end) - self._tx_base
        if acknowledged > self._acknowledged:
            self._acknowledged = acknowledged
            self._post(LlpMessage.ACKNOWLEDGED, lane, acknowledged, b"")
        if not self._ended_told and self._given == len(unread) and self._at_end:
            self._ended_told = True
            lost = self.connection.cause not in (None, Cause.CLOSED)
            self._post(LlpMessage.ENDED, lane, int(lost), b"")

    def _count(self, segment: Segment) -> None:
        self._segments_sent += 1
        if not segment.length:
            return
        beyond = sequence.add(segment.sequence, segment.length)
        if sequence.before(segment.sequence, self._sent_up_to):
            self._retransmissions += 1
        if sequence.before(self._sent_up_to, beyond):
            new = sequence.distance(beyond, self._sent_up_to)
            self._octets_sent += min(new, len(segment.payload))
            self._sent_up_to = beyond

    def info(self) -> ConnectionInfo:
        """How it does."""
        record = self.connection.record
        sender, receiver = record.sender, record.receiver
        measured = sender.rto.srtt8 is not None
        return ConnectionInfo(
            state=record.state.name.replace("_", "-"),
            smoothed_rtt_us=(sender.rto.srtt8 or 0) >> 3 if measured else None,
            rtt_variance_us=sender.rto.rttvar4 >> 2 if measured else None,
            rto_us=sender.rto.microseconds,
            congestion_window=sender.congestion.cwnd,
            slow_start_threshold=sender.congestion.ssthresh,
            maximum_segment_size=sender.smss,
            send_window=sender.window,
            receive_window=receiver.window,
            in_flight=sender.max - sender.una,
            queued=max(sender.end - sender.max, 0),
            segments_sent=self._segments_sent,
            segments_received=self._segments_received,
            octets_sent=self._octets_sent,
            octets_received=self._octets_received,
            retransmissions=self._retransmissions,
            unacknowledged=sender.number(sender.una),
            next_sent=sender.number(sender.max),
            next_received=receiver.next_sequence,
        )
