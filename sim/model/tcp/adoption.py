"""A connection whose handshake was made elsewhere: its record begins in ESTABLISHED."""

from dataclasses import dataclass

from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.record import Endpoint, Record
from stagecoach.sim.model.tcp.state import State


@dataclass(frozen=True)
class Adoption:
    """What a handshake leaves; sequence numbers as on the wire, times in microseconds.

    next_sent: SND.NXT and SND.UNA. next_received: RCV.NXT. window: SND.WND, scaled; window_from:
    SND.WL1. send_shift, receive_shift: of the window fields. receive_window: that was announced.
    smss: data of the longest segment. sack: both permitted it. round_trip: None if SYN was sent
    more than once (Karn). syn_losses: how often it was sent again.
    """

    remote: Endpoint
    next_sent: int
    next_received: int
    window: int
    window_from: int
    send_shift: int
    receive_shift: int
    receive_window: int
    smss: int
    sack: bool
    round_trip: int | None
    syn_losses: int


def adopt(record: Record, now: int, adoption: Adoption) -> None:
    """Bring a new record into ESTABLISHED."""
    sender, receiver = record.sender, record.receiver
    sender.initial = sequence.add(adoption.next_sent, -1)
    sender.next = sender.max = 0
    sender.smss = record.peer_mss = adoption.smss
    sender.adopt_window(adoption.window, adoption.window_from, adoption.send_shift)
    receiver.initial = sequence.add(adoption.next_received, -1)
    receiver.adopt(adoption.receive_shift, adoption.receive_window, adoption.sack)
    sender.permit_sack(receiver.sack)
    record.keep_alive.heard(now)
    record.state = State.ESTABLISHED
    sender.establish(now, adoption.round_trip, adoption.syn_losses)
