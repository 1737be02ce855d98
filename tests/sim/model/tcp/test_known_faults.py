"""Faults that users of other TCP engines reported, each as a test of what is right.

The engines are fpga-network-stack and Vitis_with_100Gbps_TCP-IP (fpgasystems), eth_vlg (hypernyan)
and smoltcp (smoltcp-rs); the numbers are those of their issues and pull requests.
"""

from ipaddress import IPv4Interface

import pytest

from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.host import Host
from stagecoach.sim.model.tcp.segment import Flags, Segment, decode_packet, encode_packet
from stagecoach.sim.model.tcp.state import State
from tests.sim.model.tcp.script import (
    IRS,
    ISS,
    KEY,
    MS,
    S,
    Script,
    accepted,
    established,
    peer_data,
)

requirement = pytest.mark.requirement
MSS = 1460


@requirement("TCP-SHLD-31")
def test_data_out_of_order_is_not_dropped():
    # fpga-network-stack #19.
    script = established()
    for number in (3, 1, 2):
        script.arrive("A", 1 + 100 * number, 1, data=100)
    script.sent()
    script.arrive("A", 1, 1, data=100)
    assert script.sent() == ["A 1 ack 401"]
    assert script.receive() == peer_data(1, 400)


@requirement("TCP-3.4-01", "TCP-SHLD-31")
@pytest.mark.parametrize("before_the_wrap", [1, 50, 99, 100])
def test_data_out_of_order_across_the_wrap_of_sequence_numbers(before_the_wrap):
    # fpga-network-stack compares offsets as plain numbers.
    script = established(syn={"mss": MSS, "sack_permitted": True})
    # RCV.NXT is put so far below 2^32: IRS is SPACE - 1000.
    filled = 999 - before_the_wrap
    script.arrive("A", 1, 1, data=filled)
    script.after(40 * MS)
    start = 1 + filled
    assert sequence.add(IRS, start) == sequence.SPACE - before_the_wrap
    script.arrive("A", start + 300, 1, data=100)
    script.arrive("A", start + 100, 1, data=100)
    wrapped = start + 100
    assert script.last.options.sack[0] == (
        sequence.add(IRS, wrapped),
        sequence.add(IRS, wrapped + 100),
    )
    script.arrive("A", start + 200, 1, data=100)
    script.arrive("A", start, 1, data=100)
    assert script.sent()[-1] == f"A 1 ack {start + 400}"
    assert script.receive() == peer_data(1, filled + 400)


@requirement("TCP-MUST-35", "TCP-MUST-36")
def test_sender_goes_on_after_the_window_was_closed():
    # fpga-network-stack #21: the sender stalls.
    script = established(win=2 * MSS)
    script.send(20_000)
    for number in range(3):
        una = 1 + 2 * MSS * number
        assert script.sent() == [f"A {una + MSS * i}+1460 ack 1" for i in range(2)]
        una += 2 * MSS
        script.arrive("A", 1, una, win=0)
        # The update is lost; a probe brings the next one.
        script.after(S)
        assert script.sent() == [f"A {una}+1 ack 1"]
        script.arrive("A", 1, una, win=2 * MSS)
    assert script.state is State.ESTABLISHED


@requirement("TCP-MUST-36")
def test_nothing_is_left_out_after_a_zero_window():
    # eth_vlg #4: a packet is skipped.
    script = established(win=1000)
    script.send(5000)
    script.arrive("A", 1, 1001, win=0)
    script.at(S)
    script.arrive("A", 1, 1001, win=1000)
    script.arrive("A", 1, 2001, win=0)
    script.at(3 * S)
    script.arrive("A", 1, 2002, win=5000)
    script.sent()
    stream = bytearray(5000)
    for segment in script.segments:
        at = sequence.distance(segment.sequence, ISS) - 1
        stream[at : at + len(segment.payload)] = segment.payload
    assert stream == bytes(i % 251 for i in range(5000))


@requirement("RTO-5.4-01", "TCP-3.4-01")
def test_retransmission_across_the_wrap_has_the_same_bytes():
    # fpga-network-stack #31: it reads the memory of another connection.
    script = established()
    script.send(4 * MSS)
    script.sent()
    first = list(script.segments[2:])
    # ISS is 2000 below the wrap: the second segment of 1460 has it inside.
    assert first[1].sequence + MSS > sequence.SPACE
    script.arrive("A", 1, 1 + MSS)
    script.at(S)
    script.sent()
    again = script.last
    assert (again.sequence, again.payload) == (first[1].sequence, first[1].payload)
    script.arrive("A", 1, 1 + 2 * MSS)
    for _ in range(3):
        script.arrive("A", 1, 1 + 2 * MSS)
    script.sent()
    assert script.segments[-1].payload in [segment.payload for segment in first]


@requirement("TCP-3.5.2-01")
def test_repeated_answer_of_a_server_is_a_syn_ack():
    # fpga-network-stack #39: it is a SYN.
    script = Script()
    script.connection.listen()
    script.arrive("S", 0, mss=MSS)
    script.at(3 * S)
    script.arrive("S", 0, mss=MSS)
    assert script.sent() == ["SA 0 ack 1"] * 4


@requirement("RTO-5.4-01")
@pytest.mark.parametrize("made", [established, accepted])
def test_connection_goes_on_after_a_retransmission(made):
    # Vitis_with_100Gbps_TCP-IP #12: the server crashes when one occurs.
    script = made()
    una = 1
    for number in range(5):
        script.send(2 * MSS)
        script.sent()
        # The timer stays backed off: no segment was sent once only.
        script.after(S << number)
        assert script.sent() == [f"A {una}+1460 ack 1"]
        una += 2 * MSS
        script.arrive("A", 1, una)
    assert script.state is State.ESTABLISHED
    assert script.connection.next_deadline() is None


@requirement("RTO-5-01", "RTO-5.1-01")
def test_acks_of_nothing_new_leave_the_timer_as_it_is():
    # smoltcp #62: each ACK puts the retransmission off.
    script = established()
    script.send(10)
    for number in range(1, 10):
        script.at(number * 100 * MS)
        script.arrive("A", 1, 1, win=1000 + number)
    script.sent()
    script.at(S - 1)
    assert script.sent() == []
    script.at(S)
    assert script.sent() == ["PA 1+10 ack 1"]


@requirement("RTO-5.3-01")
def test_nothing_is_sent_again_while_all_is_acknowledged_in_time():
    # smoltcp #949, #953: something is always outstanding, and the timer of the first expires.
    script = established()
    for number in range(50):
        script.send(100)
        if number >= 5:
            # The answer to what was sent 500 ms ago.
            script.arrive("A", 1, 1 + 100 * (number - 4))
        script.after(100 * MS)
    starts = [line.split("+")[0] for line in script.sent()]
    assert len(starts) == len(set(starts)) == 50


@requirement("RTO-5.2-01")
def test_timer_runs_as_long_as_anything_is_outstanding():
    # smoltcp #660, #662: the first ACK ends it.
    script = established()
    script.send(3 * MSS)
    script.arrive("A", 1, 1 + MSS)
    script.arrive("A", 1, 1 + 2 * MSS)
    script.sent()
    assert script.connection.next_deadline() is not None
    script.at(S)
    assert script.sent() == [f"PA {1 + 2 * MSS}+{MSS} ack 1"]


@requirement("TCP-MUST-39")
def test_update_of_the_window_is_not_delayed():
    # smoltcp #935.
    script = established(receive_buffer=10_000)
    for number in range(5):
        script.arrive("A", 1 + MSS * number, 1, data=MSS)
    script.sent()
    script.receive()
    assert script.sent() == [f"A 1 ack {1 + MSS * 5}"]
    assert script.last.window == 10_000


@requirement("TCP-MUST-42", "TCP-3.5.2-01")
def test_segment_of_another_connection_does_not_touch_the_window():
    # smoltcp #518: a FIN of an old connection brings its window of 63.
    a, b = IPv4Interface("192.0.2.1/24").ip, IPv4Interface("192.0.2.2/24")
    host = Host(b, KEY)
    listener = host.listen(80)
    syn = Segment(5, 80, 100, flags=Flags.SYN, window=0xFFFF)
    host.packet_arrives(0, encode_packet(syn, a, b.ip))
    _, answer = decode_packet(host.take_packets()[0])
    ack = Segment(5, 80, 101, answer.sequence + 1, Flags.ACK, 0xFFFF)
    host.packet_arrives(0, encode_packet(ack, a, b.ip))
    connection = listener.accept()
    assert connection is not None
    old = Segment(6, 80, 101, answer.sequence + 1, Flags.FIN | Flags.ACK, 63)
    host.packet_arrives(0, encode_packet(old, a, b.ip))
    (reset,) = host.take_packets()
    assert decode_packet(reset)[1].flags is Flags.RST
    connection.send(0, bytes(1000))
    sizes = [len(decode_packet(packet)[1].payload) for packet in host.take_packets()]
    assert sizes == [536, 464]
