"""An ICMP error arrives (RFC 9293, 3.9.2.2; RFC 5927; RFC 1191)."""

from stagecoach.sim.model.tcp import icmp
from stagecoach.sim.model.tcp.handshake import path_changed
from stagecoach.sim.model.tcp.icmp import IcmpError
from stagecoach.sim.model.tcp.record import OPENING, Record
from stagecoach.sim.model.tcp.state import Cause, Report, State

_HARD = (icmp.PROTOCOL_UNREACHABLE, icmp.PORT_UNREACHABLE)
_REPORTS = {
    icmp.UNREACHABLE: Report.UNREACHABLE,
    icmp.TIME_EXCEEDED: Report.TIME_EXCEEDED,
    icmp.PARAMETER_PROBLEM: Report.PARAMETER_PROBLEM,
}


def icmp_arrives(record: Record, now: int, error: IcmpError) -> None:
    """An error about a segment of this pair of endpoints; others are ignored.

    So is one whose sequence number is not outstanding: who made it up cannot know that.
    """
    sender = record.sender
    position = sender.position(error.sequence)
    open_to_errors = record.state not in (State.CLOSED, State.LISTEN)
    if not open_to_errors or not sender.una <= position < sender.highest:
        return
    if error.type == icmp.UNREACHABLE and error.code == icmp.FRAGMENTATION_NEEDED:
        if record.path_mtu.too_big(now, error.next_hop, error.length):
            path_changed(record, now)
    elif error.type == icmp.UNREACHABLE and error.code in _HARD and record.state in OPENING:
        _is_unreachable(record)
    elif error.type in _REPORTS:
        # RFC 5927, 5.2: once the handshake is over, what is hard counts as soft.
        record.report(_REPORTS[error.type])


def _is_unreachable(record: Record) -> None:
    """SHLD-26: the handshake fails."""
    if record.passive:
        record.state = State.LISTEN
    else:
        record.end(Cause.UNREACHABLE)
