"""Timeouts (RFC 9293, 3.10.8): which is the next, and what happens then."""

from stagecoach.sim.model.tcp import handshake
from stagecoach.sim.model.tcp.record import SENDING, Record
from stagecoach.sim.model.tcp.segment import Flags
from stagecoach.sim.model.tcp.state import Cause, Report, State


def next_deadline(record: Record) -> int | None:
    """When something is due, None if never."""
    deadlines = (
        record.wait_at,
        record.syn_at,
        record.sender.retransmit_at,
        record.sender.persist_at,
        record.sender.loss_probe.at,
        record.receiver.ack_at,
        _alive_at(record),
        record.path_mtu.raise_at,
    )
    return min((at for at in deadlines if at is not None), default=None)


def expire(record: Record, now: int) -> None:
    """Do what is due."""
    if _due(record.wait_at, now):
        record.end(Cause.CLOSED)
    if _due(record.syn_at, now):
        handshake.syn_expires(record, now)
        _tell_r1(record, record.syn_losses)
    retransmits = _due(record.sender.retransmit_at, now)
    probes = _due(record.sender.persist_at, now)
    tail = _due(record.sender.loss_probe.at, now)
    if (retransmits or probes or tail) and record.sender.is_given_up(now):
        record.end(Cause.TIMED_OUT)
    elif tail:
        record.sender.probe_tail(now)
    elif retransmits:
        record.sender.expire(now)
        _tell_r1(record, record.sender.retries)
    elif probes:
        record.sender.probe(now)
    if _due(record.receiver.ack_at, now):
        record.send_ack(now)
    if _due(_alive_at(record), now):
        _probe_peer(record, now)
    if _due(record.path_mtu.raise_at, now):
        record.path_mtu.raise_estimate(now)
        handshake.path_changed(record, now)


def _due(at: int | None, now: int) -> bool:
    return at is not None and now >= at


def _tell_r1(record: Record, retries: int) -> None:
    """SHLD-9: once, when R1 is reached."""
    if retries == record.settings.r1 and record.state is not State.CLOSED:
        record.report(Report.SUSPECT)


def _alive_at(record: Record) -> int | None:
    """Only while nothing is outstanding (MUST-26)."""
    if record.state not in SENDING or record.sender.outstanding:
        return None
    return record.keep_alive.at


def _probe_peer(record: Record, now: int) -> None:
    """The byte before SND.NXT, without data (RFC 9293, 3.8.4)."""
    if record.keep_alive.probe():
        record.emit(now, record.sender.max - 1, Flags.ACK)
        return
    record.send_reset(now)
    record.end(Cause.KEEP_ALIVE)
