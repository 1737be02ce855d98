"""Closing: FIN both ways, TIME-WAIT and what ends it (RFC 9293, 3.6)."""

from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.record import Record
from stagecoach.sim.model.tcp.segment import Flags, Segment
from stagecoach.sim.model.tcp.state import Cause, State


def close(record: Record, now: int) -> None:
    """No more to send: FIN follows what is queued."""
    record.sender.closing = True
    # RFC 9293, 3.10.4: in SYN-RECEIVED it waits until the connection is established.
    if record.state is not State.SYN_RECEIVED:
        enter_closing(record)
    record.sender.push(now)


def enter_closing(record: Record) -> None:
    """CLOSE was called in a state that sends."""
    passive = record.state is State.CLOSE_WAIT
    record.state = State.LAST_ACK if passive else State.FIN_WAIT_1


def lose_data(record: Record, now: int) -> None:
    """Data of the peer that nobody will read: a reset shows it (SHLD-3)."""
    record.send_reset(now)
    record.end(Cause.DATA_LOST)


def fin_acknowledged(record: Record, now: int) -> None:
    """Our FIN was acknowledged."""
    if record.state is State.FIN_WAIT_1:
        record.state = State.FIN_WAIT_2
    elif record.state is State.CLOSING:
        enter_time_wait(record, now)
    elif record.state is State.LAST_ACK:
        record.end(Cause.CLOSED)


def fin_arrived(record: Record, now: int) -> None:
    """The peer's FIN is in order, and all data before it."""
    if record.state is State.ESTABLISHED:
        record.state = State.CLOSE_WAIT
    elif record.state is State.FIN_WAIT_1:
        record.state = State.CLOSING
    else:
        enter_time_wait(record, now)


def enter_time_wait(record: Record, now: int) -> None:
    """2 MSL begin (MUST-13)."""
    record.state = State.TIME_WAIT
    record.stop_timers()
    record.wait_at = now + 2 * record.settings.msl


def may_reopen(record: Record, segment: Segment) -> bool:
    """Whether a SYN in TIME-WAIT is newer than all that the peer sent before (MAY-2).

    Only a connection that began with a passive OPEN has a listener that takes another one.
    """
    waiting = record.state is State.TIME_WAIT and record.passive
    alone = segment.flags & (Flags.SYN | Flags.ACK | Flags.RST | Flags.FIN) == Flags.SYN
    newer = sequence.distance(segment.sequence, record.receiver.next_sequence) >= 0
    return waiting and alone and newer
