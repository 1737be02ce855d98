"""ICMP: the codec, what errors do to a connection, the path MTU."""

from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.sim.model.tcp import icmp, sequence
from stagecoach.sim.model.tcp.icmp import IcmpError
from stagecoach.sim.model.tcp.ipv4 import Packet
from stagecoach.sim.model.tcp.malformed import MalformedError, Reason
from stagecoach.sim.model.tcp.path_mtu import (
    PathMtu,
    effective_mss,
    plateau_below,
)
from stagecoach.sim.model.tcp.segment import Segment, encode_packet
from stagecoach.sim.model.tcp.state import Cause, Report, State
from tests.sim.model.tcp.script import IRS, ISS, LOCAL, REMOTE, START, S, Script, established
from tests.sim.model.tcp.vectors import vectors

requirement = pytest.mark.requirement
# Made by scapy.
_DATA = "378d0001000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223"
_DATA += "2425262728292a2b2c2d2e2f3031323334353637"
ECHO_REQUEST = bytes.fromhex("45000054002800004001f67dc0000201c00002020800c95e" + _DATA)
ECHO_REPLY = bytes.fromhex("45000054002900004001f67cc0000202c00002010000d15e" + _DATA)
QUOTED = "450005dc000a40004006b10ec0000201c00002029c40114400001001"
MINUTES = 60 * S


def error(script: Script, kind: int, code: int = 0, seq: int = 1, **fields: Any) -> None:
    """An ICMP error about a segment of the connection arrives, by way of the codec."""
    segment = Segment(LOCAL[1], REMOTE[1], sequence.add(ISS, seq), payload=bytes(1000))
    quoted = encode_packet(segment, LOCAL[0], REMOTE[0])
    if "length" in fields:
        quoted = quoted[:2] + fields["length"].to_bytes(2, "big") + quoted[4:]
    found = IcmpError.decode(icmp.error_about(quoted, kind, code, fields.get("next_hop", 0)))
    assert found is not None
    script.connection.icmp_arrives(START + script.now, found)


# The codec.


@requirement("ICMP-01", "ICMP-02", "IP-1122-3.2.2.6-01")
def test_echo_is_answered_with_all_of_its_data():
    request, reply = Packet.decode(ECHO_REQUEST), Packet.decode(ECHO_REPLY)
    assert icmp.echo_reply(request.payload) == reply.payload
    assert icmp.echo_reply(reply.payload) is None
    wrong = request.payload[:-1] + bytes((request.payload[-1] ^ 1,))
    assert icmp.echo_reply(wrong) is None
    assert icmp.echo_reply(request.payload[:7]) is None


@pytest.mark.parametrize(
    ("header", "kind", "code", "next_hop"),
    [
        ("03043b8e000003e8", 3, 4, 1000),
        ("03043f7600000000", 3, 4, 0),
        ("03033f7700000000", 3, 3, 0),
        ("03013f7900000000", 3, 1, 0),
        ("0b00377a00000000", 11, 0, 0),
        ("04003e7a00000000", 4, 0, 0),
    ],
)
def test_errors_of_another_program(header, kind, code, next_hop):
    ends = REMOTE[0], LOCAL[0], 40000, 4420
    found = IcmpError(kind, code, *ends, 0x1001, length=1500, next_hop=next_hop)
    assert IcmpError.decode(bytes.fromhex(header + QUOTED)) == found
    quoted = bytes.fromhex(QUOTED)
    assert icmp.error_about(quoted, kind, code, next_hop) == bytes.fromhex(header + QUOTED)


@requirement("IP-1122-3.2.2-02", "IP-1122-3.2.2-03")
@given(st.integers(0, 15), st.integers(0, 0xFFFF), st.integers(0, 0xFFFF_FFFF))
def test_error_quotes_ports_and_number(code, next_hop, number):
    quoted = encode_packet(Segment(7, 8, number, payload=b"x" * 50), LOCAL[0], REMOTE[0])
    octets = icmp.error_about(quoted, icmp.UNREACHABLE, code, next_hop)
    assert octets[8:] == quoted[:28]
    assert IcmpError.decode(octets) == IcmpError(
        icmp.UNREACHABLE,
        code,
        *(LOCAL[0], REMOTE[0], 7, 8, number),
        length=len(quoted),
        next_hop=next_hop if code == icmp.FRAGMENTATION_NEEDED else 0,
        protocol=6,
    )


def test_quoted_header_may_have_options():
    header = bytes.fromhex("4600001800000000400600 00c0000202c0000201 01010100".replace(" ", ""))
    quoted = header + (7).to_bytes(2, "big") + (8).to_bytes(2, "big") + (9).to_bytes(4, "big")
    found = IcmpError.decode(icmp.error_about(quoted, icmp.TIME_EXCEEDED, 0))
    assert found is not None
    assert (found.source_port, found.destination_port, found.sequence) == (7, 8, 9)
    with pytest.raises(MalformedError, match="ICMP_QUOTE"):
        IcmpError.decode(icmp.error_about(quoted[:-1], icmp.TIME_EXCEEDED, 0))


@requirement("ICMP-02")
@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (bytes(7), Reason.ICMP_SHORT),
        (bytes((3, 0, 0, 0)) + bytes(36), Reason.ICMP_CHECKSUM),
        (icmp.error_about(b"\x45" + bytes(26), 3, 0), Reason.ICMP_QUOTE),
        (icmp.error_about(b"\x65" + bytes(27), 3, 0), Reason.ICMP_QUOTE),
        (icmp.error_about(b"\x44" + bytes(27), 3, 0), Reason.ICMP_QUOTE),
        (icmp.error_about(b"\x46" + bytes(27), 3, 0), Reason.ICMP_QUOTE),
    ],
)
def test_malformed_messages_are_refused_by_name(octets, reason):
    with pytest.raises(MalformedError, match=reason.name):
        IcmpError.decode(octets)


@requirement("IP-1122-3.2.2-01")
@pytest.mark.parametrize("kind", [0, 1, 2, 5, 8, 9, 13, 255])
def test_other_messages_are_ignored(kind):
    assert IcmpError.decode(icmp.error_about(b"\x45" + bytes(27), kind, 0)) is None


# Soft and hard errors.

SOFT = [(3, 0), (3, 1), (3, 5), (3, 6), (3, 12), (11, 0), (11, 1), (12, 0)]
REPORTS = {3: Report.UNREACHABLE, 11: Report.TIME_EXCEEDED, 12: Report.PARAMETER_PROBLEM}


@requirement("TCP-MUST-56", "TCP-MUST-47", "TCP-SHLD-25", "TCP-SHLD-20", "IP-1122-3.2.2.1-01")
@requirement("IP-1122-3.2.2.4-01", "IP-1122-3.2.2.5-01")
@pytest.mark.parametrize(("kind", "code"), SOFT)
@pytest.mark.parametrize("reports", [True, False])
def test_soft_errors_are_told_and_end_nothing(kind, code, reports):
    script = established(reports=reports)
    script.send(100)
    error(script, kind, code)
    assert script.state is State.ESTABLISHED
    assert script.connection.reports == [REPORTS[kind]] * reports
    script = Script(reports=reports)
    script.open()
    error(script, kind, code, seq=0)
    assert script.state is State.SYN_SENT
    assert script.connection.reports == [REPORTS[kind]] * reports


@requirement("TCP-SHLD-26", "IP-1122-3.2.2.1-01")
@pytest.mark.parametrize("code", [2, 3])
def test_hard_errors_end_a_handshake(code):
    script = Script()
    script.open()
    error(script, 3, code, seq=0)
    assert (script.state, script.connection.cause) == (State.CLOSED, Cause.UNREACHABLE)
    script = Script()
    script.connection.listen()
    script.arrive("S", 0)
    error(script, 3, code, seq=0)
    assert (script.state, script.connection.remote) == (State.LISTEN, None)
    assert script.connection.next_deadline() is None


@requirement("ICMPA-5.2-01")
@pytest.mark.parametrize("code", [2, 3])
def test_hard_errors_are_soft_once_the_connection_is_established(code):
    script = established()
    script.send(100)
    error(script, 3, code)
    assert script.state is State.ESTABLISHED
    assert script.connection.reports == [Report.UNREACHABLE]


@requirement("ICMPA-4.1-01")
@pytest.mark.parametrize(("seq", "taken"), [(0, False), (1, True), (100, True), (101, False)])
def test_error_about_a_number_that_is_not_outstanding_is_ignored(seq, taken):
    script = established()
    script.send(100)
    error(script, 3, 1, seq=seq)
    assert script.connection.reports == [Report.UNREACHABLE] * taken
    script = established()
    error(script, 3, 1)
    assert script.connection.reports == []


@requirement("TCP-MUST-55", "SQ-3-01")
def test_source_quench_is_ignored():
    script = established()
    script.send(40 * 1460)
    script.sent()
    cwnd = script.connection._record.sender.congestion.cwnd
    error(script, icmp.SOURCE_QUENCH)
    assert script.sent() == []
    assert script.connection._record.sender.congestion.cwnd == cwnd
    assert script.connection.reports == []


@pytest.mark.parametrize("state", [State.LISTEN, State.CLOSED])
def test_errors_find_nothing_where_no_connection_is(state):
    script = established()
    script.send(100)
    script.sent()
    script.abort()
    if state is State.LISTEN:
        script.connection.listen()
    script.sent()
    error(script, 3, 4, next_hop=600)
    error(script, 3, 1)
    assert (script.state, script.sent(), script.connection.reports) == (state, [], [])


# Path MTU.


@pytest.mark.parametrize("vector", [v for v in vectors("emss") if not v.values[0]["ipv6"]])
@requirement("TCP-MUST-16", "MSSOPT-3-01", "IP-1122-3.3.3-01")
def test_effective_mss(vector):
    options = 12 if vector["timestamps"] else 0
    assert effective_mss(vector["mtu"], vector["peer_mss"], options) == vector["emss"]


@requirement("IP-1122-3.3.3-02")
@requirement("TCP-MUST-67", "MSSOPT-2-01", "TCP-MUST-14")
@pytest.mark.parametrize(("mtu", "mss"), [(1500, 1460), (9000, 8960), (576, 536)])
def test_announced_mss_is_40_less_than_the_mtu(mtu, mss):
    script = Script(mss=mss)
    script.open()
    script.sent()
    assert script.last.options.mss == mss
    assert script.connection.settings.mtu == mtu


@requirement("PMTUD-3-03")
def test_plateaus():
    assert [plateau_below(length) for length in (65535, 1500, 1493, 1492, 576, 69, 68)] == [
        *(32000, 1492, 1492, 1006, 508, 68, 68)
    ]
    # RFC 1191, 7.1, each below the one before.
    found = [65536]
    while found[-1] > 68:
        found.append(plateau_below(found[-1]))
    assert found[1:] == [65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68]


@requirement("PMTUD-3-01", "PMTUD-6.4-01", "PMTUD-6.4-02", "CC-3.1-05", "RTO-3-01")
def test_too_big_shrinks_segments_and_sends_them_anew():
    script = established()
    script.send(20 * 1460)
    assert len(script.sent()) == 10
    congestion = script.connection._record.sender.congestion
    script.now = 100_000
    error(script, 3, 4, next_hop=1040)
    assert script.connection.emss == 1000
    # All that is outstanding, in segments of 1000, as far as the scaled window goes.
    assert (congestion.cwnd, congestion.ssthresh) == (10_000, 1 << 30)
    assert script.sent() == [f"A {1 + 1000 * i}+1000 ack 1" for i in range(10)]
    # The next ones of the same packets change nothing.
    error(script, 3, 4, seq=1461, next_hop=1040)
    error(script, 3, 4, seq=2921, next_hop=1040)
    assert script.sent() == []
    # No sample of the path, and no loss.
    rto = script.connection._record.sender.rto
    before = rto.srtt8
    script.arrive("A", 1, 1001)
    assert rto.srtt8 == before
    for _ in range(3):
        script.arrive("A", 1, 1001)
    assert "A 1001+1000 ack 1" not in script.sent()
    assert not congestion.recovering


@requirement("PMTUD-6.4-01")
def test_too_big_with_the_queue_sent_completely():
    script = established()
    script.send(2000)
    script.close()
    script.sent()
    error(script, 3, 4, next_hop=1040)
    assert script.sent() == ["A 1+1000 ack 1", "FPA 1001+1000 ack 1"]
    script.arrive("A", 1, 2002)
    assert script.state is State.FIN_WAIT_2


@requirement("PMTUD-3-02", "PMTUD-3-03")
@pytest.mark.parametrize(
    ("next_hop", "length", "floor", "emss"),
    [
        (0, 1500, 552, 1452),
        (0, 1492, 552, 966),
        (0, 1000, 552, 512),
        (0, 1000, 68, 468),
        (300, 1500, 552, 512),
        (300, 1500, 68, 260),
        (10, 1500, 68, 28),
        (1500, 1500, 552, 1460),
        (9000, 1500, 552, 1460),
    ],
)
def test_estimate_that_follows_a_router(next_hop, length, floor, emss):
    script = established(path_mtu_floor=floor)
    script.send(1460)
    error(script, 3, 4, next_hop=next_hop, length=length)
    assert script.connection.emss == emss


@requirement("PMTUD-3-01")
def test_estimate_is_not_raised_by_a_router():
    script = established()
    script.send(1460)
    error(script, 3, 4, next_hop=1500)
    assert script.connection._record.path_mtu.raise_at is None
    error(script, 3, 4, next_hop=1040)
    for next_hop in (1040, 1400, 1500):
        error(script, 3, 4, next_hop=next_hop)
        assert script.connection.emss == 1000
    assert script.connection._record.path_mtu.raise_at == START + 10 * MINUTES


def test_floor_below_68_is_refused():
    with pytest.raises(ValueError, match="floor of 67 bytes"):
        PathMtu(1500, 67)
    with pytest.raises(ValueError, match="floor of 1501 bytes"):
        PathMtu(1500, 1501)
    assert PathMtu(1500, 1500).estimate == 1500


def test_segments_have_at_least_one_byte():
    assert effective_mss(1500, 0) == 1


@requirement("PMTUD-3-04")
def test_estimate_is_raised_after_ten_minutes_and_then_every_two():
    script = established()
    script.send(1460)
    error(script, 3, 4, next_hop=600)
    script.arrive("A", 1, 1461)
    assert script.connection.emss == 560
    sizes = {}
    for second in range(0, 3600, 30):
        script.at(second * S)
        sizes.setdefault(script.connection.emss, second)
    assert sizes == {560: 0, 966: 600, 1452: 720, 1460: 840}
    script.sent()
    assert script.connection.next_deadline() is None


def test_nothing_but_its_end_is_due_in_time_wait():
    script = established()
    script.send(1460)
    error(script, 3, 4, next_hop=1040)
    script.close()
    script.arrive("A", 1, 1462)
    script.at(500 * S)
    script.arrive("FA", 1, 1462)
    assert script.state is State.TIME_WAIT
    assert script.connection.next_deadline() == START + 500 * S + 240 * S


@requirement("PMTUD-3-04")
def test_too_big_after_a_raise_waits_ten_minutes_again():
    script = established()
    script.send(1460)
    error(script, 3, 4, next_hop=600)
    script.arrive("A", 1, 1461)
    script.at(10 * MINUTES)
    assert script.connection.emss == 966
    script.send(966)
    error(script, 3, 4, seq=1461, next_hop=600)
    assert script.connection.emss == 560
    script.arrive("A", 1, 1461 + 966)
    script.at(20 * MINUTES - 1)
    assert script.connection.emss == 560
    script.at(20 * MINUTES)
    assert script.connection.emss == 966


def test_raised_segments_do_not_change_the_congestion_window():
    script = established()
    script.send(1460)
    error(script, 3, 4, next_hop=1040)
    script.arrive("A", 1, 1461)
    cwnd = script.connection._record.sender.congestion.cwnd
    script.sent()
    script.at(10 * MINUTES)
    assert script.connection._record.sender.congestion.cwnd == cwnd
    script.send(3000)
    assert script.sent() == ["A 1461+1452 ack 1", "A 2913+1452 ack 1", "PA 4365+96 ack 1"]


def test_too_big_of_a_syn_holds_for_the_connection():
    script = Script()
    script.open()
    error(script, 3, 4, seq=0, next_hop=1000)
    script.arrive("SA", 0, 1, mss=1460)
    assert script.connection.emss == 960
    script = Script()
    script.connection.listen()
    script.arrive("S", 0, mss=1460)
    error(script, 3, 4, seq=0, next_hop=1000)
    script.arrive("A", 1, 1)
    script.sent()
    script.send(2000)
    assert script.sent()[0] == "A 1+960 ack 1"


def test_smaller_mss_of_the_peer_needs_no_change():
    script = established(syn={"mss": 500})
    script.send(500)
    script.sent()
    error(script, 3, 4, next_hop=1000)
    assert (script.sent(), script.connection.emss) == ([], 500)


def test_errors_quote_the_own_address_first():
    found = IcmpError.decode(
        icmp.error_about(encode_packet(Segment(1, 2, IRS), LOCAL[0], REMOTE[0]), 3, 1)
    )
    assert found is not None
    assert (found.source, found.destination) == (
        IPv4Address("192.0.2.2"),
        IPv4Address("192.0.2.1"),
    )
