"""Connections whose handshake was made elsewhere, and bytes that belong together in a segment."""

import pytest

from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.adoption import Adoption
from stagecoach.sim.model.tcp.connection import Connection
from stagecoach.sim.model.tcp.segment import Flags, Segment
from stagecoach.sim.model.tcp.state import Settings, State
from tests.sim.model.tcp.script import LOCAL, MS, REMOTE

# Both wrap soon.
FIRST, THEIRS = sequence.SPACE - 700, sequence.SPACE - 50
PORTS = REMOTE[1], LOCAL[1]


def adopted(**changes: object) -> Connection:
    values: dict[str, object] = {
        "remote": REMOTE,
        "next_sent": FIRST,
        "next_received": THEIRS,
        "window": 1 << 17,
        "window_from": sequence.add(THEIRS, -1),
        "send_shift": 2,
        "receive_shift": 1,
        "receive_window": 60_000,
        "smss": 1000,
        "sack": True,
        "round_trip": 80,
        "syn_losses": 0,
    }
    adoption = Adoption(**{**values, **changes})  # type: ignore[arg-type]
    return Connection.adopted(0, LOCAL, adoption, Settings(receive_buffer=1 << 17))


def ack(connection: Connection, now: int, count: int, **fields: object) -> None:
    number = sequence.add(FIRST, count)
    values = {"flags": Flags.ACK, "window": 1 << 15, **fields}
    segment = Segment(*PORTS, THEIRS, number, **values)  # type: ignore[arg-type]
    connection.segment_arrives(now, segment, REMOTE[0])


def lengths(connection: Connection) -> list[int]:
    found = [len(segment.payload) for segment in connection.output]
    connection.output.clear()
    return found


def test_it_is_established_with_the_numbers_of_the_handshake():
    connection = adopted()
    assert connection.state is State.ESTABLISHED
    assert connection.remote == REMOTE
    assert connection.emss == 1000
    assert connection.next_deadline() is None
    connection.send(0, b"x" * 1500)
    first, second = connection.output
    assert (first.sequence, first.acknowledgment) == (FIRST, THEIRS)
    assert second.sequence == sequence.add(FIRST, 1000)
    # The right edge that was announced does not move left; the field is scaled.
    assert first.window << 1 >= 60_000
    assert connection.record.sender.rto.srtt8 == 80 << 3


def test_data_is_taken_from_the_number_on_and_acknowledged():
    connection = adopted()
    for number in range(2):
        at = sequence.add(THEIRS, 100 * number)
        segment = Segment(*PORTS, at, FIRST, Flags.ACK, 500, bytes([number]) * 100)
        connection.segment_arrives(5, segment, REMOTE[0])
    assert connection.receive(5) == b"\0" * 100 + b"\1" * 100
    assert connection.output[-1].acknowledgment == sequence.add(THEIRS, 200)


def test_the_window_of_the_handshake_holds():
    connection = adopted(window=1500)
    connection.send(0, b"x" * 5000)
    assert sum(lengths(connection)) <= 1500


def test_a_lost_syn_begins_with_one_segment():
    connection = adopted(syn_losses=1, round_trip=None)
    connection.send(0, b"x" * 5000)
    assert lengths(connection) == [1000]


def test_bytes_that_belong_together_begin_and_end_a_segment():
    connection = adopted(window=0)
    for count in (600, 300, 500, 1000, 40):
        connection.send(0, bytes(count), whole=True)
    connection.output.clear()
    ack(connection, 1, 0)
    assert lengths(connection) == [900, 500, 1000, 40]


def test_they_do_when_they_are_sent_again():
    connection = adopted()
    for count in (600, 300, 700):
        connection.send(0, bytes(count), whole=True)
    assert lengths(connection) == [600, 300, 700]
    connection.timer(3000 * MS)
    # The first two fit together; never half of the third.
    assert lengths(connection) == [900]
    ack(connection, 3001 * MS, 900)
    assert lengths(connection) == [700]


def test_they_begin_a_segment_behind_other_bytes():
    connection = adopted(window=0)
    connection.send(0, bytes(20))
    connection.send(0, bytes(300), whole=True)
    connection.send(0, bytes(900), whole=True)
    connection.output.clear()
    ack(connection, 1, 0)
    assert lengths(connection) == [320, 900]


@pytest.mark.parametrize("smss", [100, 250])
def test_what_is_longer_than_a_segment_is_cut(smss):
    connection = adopted(window=0)
    connection.send(0, bytes(600), whole=True)
    connection.output.clear()
    connection.resize(0, smss)
    ack(connection, 1, 0)
    assert lengths(connection) == [smss] * (600 // smss) + [600 % smss] * (600 % smss > 0)


def test_a_smaller_segment_size_holds_at_once():
    connection = adopted()
    connection.send(0, bytes(3000))
    connection.output.clear()
    connection.resize(0, 500)
    assert connection.emss == 500
    assert max(lengths(connection)) == 500
