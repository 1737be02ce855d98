"""A segment arrives at a connection (RFC 9293, 3.10.7.3 and 3.10.7.4; RFC 5961)."""

from stagecoach.sim.model.tcp import closing, handshake, sequence
from stagecoach.sim.model.tcp.record import RECEIVING, Record
from stagecoach.sim.model.tcp.segment import Flags, Segment
from stagecoach.sim.model.tcp.state import Cause, State


def arrives(record: Record, now: int, segment: Segment) -> None:
    """The checks, in their order."""
    record.keep_alive.heard(now)
    flags = segment.flags
    if Flags.RST in flags:
        _reset_arrives(record, now, segment)
    elif handshake.is_answer_of_crossed_syn(record, segment):
        record.sender.set_window(segment, 0)
        handshake.established(record, now)
        _established(record, now)
        record.receiver.ack_now = True
        _take_text(record, now, segment)
    elif Flags.SYN in flags:
        # RFC 5961, 4: whatever its sequence number is.
        if handshake.is_repeated_syn(record, segment):
            handshake.repeat_syn(record, now)
        else:
            record.challenge(now)
    elif not _is_acceptable(record, segment):
        _arrives_outside(record, now, segment)
    elif Flags.ACK in flags and _take_ack(record, now, segment):
        _take_text(record, now, segment)


def arrives_in_syn_sent(record: Record, now: int, segment: Segment) -> None:
    """The handshake, and data that came with it."""
    handshake.arrives_in_syn_sent(record, now, segment)
    if record.state is State.ESTABLISHED:
        _take_text(record, now, segment)


def _take_text(record: Record, now: int, segment: Segment) -> None:
    """Urgent pointer, data and FIN, and what has to be sent then."""
    receiver = record.receiver
    _count_urgent(record, segment)
    if record.state in RECEIVING:
        # A SYN takes the number before its data.
        number = sequence.add(segment.sequence, Flags.SYN in segment.flags)
        position = receiver.position(number)
        if record.discarding and position + len(segment.payload) > receiver.next:
            closing.lose_data(record, now)
            return
        if receiver.take(now, position, segment.payload, Flags.FIN in segment.flags):
            closing.fin_arrived(record, now)
    _answer(record, now)


def _count_urgent(record: Record, segment: Segment) -> None:
    """Urgent data stays in the stream, where it stands (RFC 9293, 3.8.5)."""
    record.urgent_segments += Flags.URG in segment.flags


def _answer(record: Record, now: int) -> None:
    """At most one ACK for a segment; SACK blocks go on one without data."""
    if record.receiver.ack_now and record.receiver.gap:
        record.send_ack(now)
    record.sender.push(now)
    if record.receiver.ack_now:
        record.send_ack(now)


def _is_acceptable(record: Record, segment: Segment) -> bool:
    receiver = record.receiver
    expected = receiver.next_sequence, receiver.window
    return sequence.acceptable(segment.sequence, segment.length, *expected)


def _reset_arrives(record: Record, now: int, segment: Segment) -> None:
    """RFC 5961, 3.2: only the exact sequence number resets, also while the window is zero."""
    beyond = sequence.distance(segment.sequence, record.receiver.next_sequence)
    if beyond == 0:
        _is_reset(record)
    elif 0 < beyond < record.receiver.window:
        record.challenge(now)


def _is_reset(record: Record) -> None:
    if record.state is State.SYN_RECEIVED and record.passive:
        # No failure of the user's: LISTEN, or TIME-WAIT if an old SYN came (MAY-2).
        record.state = State.LISTEN
    elif record.state is State.SYN_RECEIVED:
        record.end(Cause.REFUSED)
    elif record.state is State.TIME_WAIT:
        # All was closed already.
        record.end(Cause.CLOSED)
    else:
        record.end(Cause.RESET)


def _arrives_outside(record: Record, now: int, segment: Segment) -> None:
    """A segment that is not acceptable is acknowledged."""
    receiver = record.receiver
    if record.state is State.TIME_WAIT and Flags.FIN in segment.flags:
        record.wait_at = now + 2 * record.settings.msl
    if not receiver.window and segment.sequence == receiver.next_sequence:
        # At a zero window valid ACKs and urgent pointers are taken (MUST-66).
        _count_urgent(record, segment)
        if Flags.ACK in segment.flags and not _take_ack(record, now, segment):
            return
    # RFC 5961, 7: without data it may be the answer to one of ours, and so on for ever.
    if segment.length or record.challenges.allow(now):
        record.send_ack(now)
    record.sender.push(now)


def _take_ack(record: Record, now: int, segment: Segment) -> bool:
    """The ACK field, window and what follows from them; False if the segment is dropped."""
    sender = record.sender
    ack = sender.position(segment.acknowledgment)
    if record.state is State.SYN_RECEIVED:
        if not sender.una < ack <= sender.highest:
            record.refuse(segment)
            return False
        sender.set_window(segment, sender.shift)
        handshake.established(record, now)
        _established(record, now)
    elif sender.is_stale(ack):
        record.challenge(now)
        return False
    else:
        sender.take_ack(now, segment, ack)
    if sender.fin_acknowledged:
        closing.fin_acknowledged(record, now)
    return record.state is not State.CLOSED


def _established(record: Record, now: int) -> None:
    """SYN-RECEIVED has ended; CLOSE may have been called in it."""
    if record.sender.closing:
        closing.enter_closing(record)
