"""Opening: SYN and SYN,ACK, both ways and crossing (RFC 9293, 3.5 and 3.10.7.2 to 3.10.7.3)."""

from stagecoach.sim.model.tcp.options import Options
from stagecoach.sim.model.tcp.path_mtu import effective_mss
from stagecoach.sim.model.tcp.record import OPENING, Record
from stagecoach.sim.model.tcp.segment import NO_FLAGS, Flags, Segment
from stagecoach.sim.model.tcp.state import Cause, State


def begin(record: Record, now: int, initial: int) -> None:
    """Choose ISS; a SYN is about to be sent."""
    record.sender.initial = initial
    record.sender.next = record.sender.max = 0
    record.syn_since = record.syn_timed = now


def send_syn(record: Record, now: int) -> None:
    """SYN, or SYN,ACK once the peer's SYN is known; its window is not scaled."""
    answer = record.state is State.SYN_RECEIVED
    options = Options(
        mss=record.settings.mss,
        window_scale=record.receiver.shift if record.scaling else None,
        sack_permitted=record.receiver.sack,
    )
    if record.syn_at is None:
        record.syn_at = now + record.sender.rto.microseconds
    record.emit(now, -1, Flags.SYN | (Flags.ACK if answer else NO_FLAGS), options=options)


def repeat_syn(record: Record, now: int) -> None:
    """SYN once more: what it measures is no round trip (Karn)."""
    record.syn_timed = None
    send_syn(record, now)


def syn_expires(record: Record, now: int) -> None:
    """The retransmission timer of SYN (MUST-22)."""
    if now - record.syn_since >= record.settings.r2_syn:
        record.end(Cause.TIMED_OUT)
        return
    record.sender.rto.expire()
    record.syn_losses += 1
    record.syn_at = now + record.sender.rto.microseconds
    repeat_syn(record, now)


def take_syn(record: Record, now: int, segment: Segment) -> None:
    """The peer's SYN: its sequence number, window and options."""
    options, sender, receiver = segment.options, record.sender, record.receiver
    receiver.initial = segment.sequence
    record.keep_alive.heard(now)
    record.scaling = record.scaling and options.window_scale is not None
    if record.scaling:
        sender.shift = options.window_scale or 0
    else:
        receiver.shift = 0
    receiver.sack = receiver.sack and options.sack_permitted
    sender.permit_sack(receiver.sack)
    record.peer_mss = options.mss
    sender.smss = effective_mss(record.path_mtu.estimate, options.mss)
    sender.set_window(segment, 0)


def established(record: Record, now: int) -> None:
    """Our SYN was acknowledged."""
    record.state = State.ESTABLISHED
    record.syn_at = record.previous = None
    measured = None if record.syn_timed is None else now - record.syn_timed
    record.sender.establish(now, measured, record.syn_losses)


def arrives_in_syn_sent(record: Record, now: int, segment: Segment) -> None:
    """RFC 9293, 3.10.7.3; what comes after SYN is left to the caller."""
    acknowledged = Flags.ACK in segment.flags
    if acknowledged and record.sender.position(segment.acknowledgment) != 0:
        record.refuse(segment)
    elif Flags.RST in segment.flags:
        # Erratum 8167: its sequence number is not looked at.
        if acknowledged:
            record.end(Cause.REFUSED)
    elif Flags.SYN in segment.flags:
        take_syn(record, now, segment)
        if acknowledged:
            established(record, now)
            record.receiver.ack_now = True
        else:
            record.state = State.SYN_RECEIVED
            record.syn_at = None
            send_syn(record, now)


def is_answer_of_crossed_syn(record: Record, segment: Segment) -> bool:
    """Whether a SYN,ACK ends a simultaneous open (RFC 9293, Figure 8, line 6)."""
    both = Flags.SYN | Flags.ACK
    crossing = record.state is State.SYN_RECEIVED and not record.passive
    return (
        crossing
        and segment.flags & (both | Flags.RST) == both
        and segment.sequence == record.receiver.initial
        and record.sender.position(segment.acknowledgment) == 0
    )


def is_repeated_syn(record: Record, segment: Segment) -> bool:
    """Whether the peer sends its SYN again, because our SYN,ACK was lost."""
    flags = segment.flags & (Flags.SYN | Flags.ACK)
    first = segment.sequence == record.receiver.initial
    return record.state is State.SYN_RECEIVED and flags == Flags.SYN and first


def path_changed(record: Record, now: int) -> None:
    """The path MTU estimate is another one: so is the segment size (RFC 1191, 6.4)."""
    smss = effective_mss(record.path_mtu.estimate, record.peer_mss)
    if record.state in OPENING:
        record.sender.smss = smss
    else:
        record.sender.resize(now, smss)
