"""Each message of the exchange as literal octets."""

import ctypes

import pytest

from stagecoach.ulp.perftest.errors import PerftestError, WrongPerftestVersion
from stagecoach.ulp.perftest.messages import (
    DESTINATION_OCTETS,
    LINE_OCTETS,
    MTU,
    PAGE_OCTETS,
    Destination,
    Report,
    check_mtu,
    check_version,
    pack_credit,
    pack_mtu,
    pack_number,
    pack_version,
    shown,
    unpack_credit,
    unpack_line,
    unpack_page,
)
from tests.ulp.perftest.foreign import PingpongDest

FULL = Destination(
    lid=0x0102,
    out_reads=0x10,
    qpn=0x123456,
    psn=0xABCDEF,
    rkey=0x89ABCDEF,
    vaddr=0x00007F0123456789,
    gid=bytes(range(0xA0, 0xB0)),
    srqn=0x77,
    gid_index=-1,
)
FULL_OCTETS = bytes.fromhex(
    "00000102 00000010 00123456 00abcdef"  # lid, out_reads, qpn, psn
    "89abcdef 00000000 00007f01 23456789"  # rkey, padding, vaddr
    "a0a1a2a3 a4a5a6a7 a8a9aaab acadaeaf"  # gid
    "00000077 ffffffff"  # srqn, gid_index
)


def test_the_version_is_a_text_of_16_octets():
    assert pack_version() == bytes.fromhex("362e3036 00000000 00000000 00000000")
    check_version(pack_version())
    check_version(b"6.06\0whatever was there")


@pytest.mark.parametrize(
    ("octets", "name"),
    [
        (b"5.96".ljust(16, b"\0"), "'5.96'"),
        (b"6.060".ljust(16, b"\0"), "'6.060'"),
        (b"6.23".ljust(16, b"\0"), "'6.23'"),
        (bytes(16), "''"),
        (b"\xff\x00".ljust(16, b"\0"), r"'\\xff'"),
        (b"6.06" * 4, "'6.066.066.066.06'"),
    ],
)
def test_any_other_version_is_refused_by_name(octets, name):
    with pytest.raises(WrongPerftestVersion) as caught:
        check_version(octets)
    assert str(caught.value) == (
        f"the peer's version of perftest is {name}; allowed: '6.06', that of perftest 4.5+0.17"
    )


def test_page_line_and_mtu():
    assert pack_number(PAGE_OCTETS) == bytes.fromhex("00001000")
    assert pack_number(LINE_OCTETS) == bytes.fromhex("00000040")
    assert pack_mtu(MTU) == b"\x33\x00"
    assert unpack_page(bytes.fromhex("00010000")) == 65536
    assert unpack_line(bytes.fromhex("00000080")) == 128
    for code in b"12345":
        check_mtu(bytes([code, 0]))


@pytest.mark.parametrize(
    ("unpack", "octets", "message"),
    [
        (unpack_page, "00000000", "page size is 0; allowed: 1 to 1048576"),
        (unpack_page, "00100001", "page size is 1048577; allowed: 1 to 1048576"),
        (unpack_page, "ffffffff", "page size is 4294967295; allowed"),
        (unpack_line, "00000000", "cache line size is 0; allowed: 1 to 4096"),
        (unpack_line, "00001001", "cache line size is 4097; allowed: 1 to 4096"),
        (check_mtu, "3000", r"MTU is b'0\x00'; allowed: a digit from 1 to 5 and a zero"),
        (check_mtu, "3600", r"MTU is b'6\x00'"),
        (check_mtu, "3333", "MTU is b'33'"),
        (check_mtu, "0003", r"MTU is b'\x00\x03'"),
    ],
)
def test_values_that_no_machine_has_are_refused(unpack, octets, message):
    with pytest.raises(PerftestError) as caught:
        unpack(bytes.fromhex(octets))
    assert message in str(caught.value)


def test_a_destination_has_the_octets_of_the_c_struct():
    assert len(FULL_OCTETS) == DESTINATION_OCTETS == ctypes.sizeof(PingpongDest) == 56
    assert FULL.pack() == FULL_OCTETS
    assert Destination.unpack(FULL_OCTETS) == FULL
    assert Destination().pack() == bytes(56)


def test_the_padding_of_a_destination_may_hold_anything():
    octets = bytearray(FULL_OCTETS)
    octets[20:24] = b"\xff\xfe\xfd\xfc"
    assert Destination.unpack(bytes(octets)) == FULL


def test_the_offsets_are_those_of_the_abi():
    offsets = {name: getattr(PingpongDest, name).offset for name, _ in PingpongDest._fields_}
    assert offsets == {
        "lid": 0,
        "out_reads": 4,
        "qpn": 8,
        "psn": 12,
        "rkey": 16,
        "vaddr": 24,
        "gid": 32,
        "srqn": 48,
        "gid_index": 52,
    }
    for place, (name, _) in enumerate(PingpongDest._fields_):
        if name != "gid":
            value = 0x01020304 + place
            there = bytes(PingpongDest(**{name: value}))
            assert Destination(**{name: value}).pack() == there, name  # type: ignore[arg-type]


def test_an_address_must_leave_room():
    Destination(vaddr=2**64 - 8).check_room(8)
    with pytest.raises(PerftestError, match="0xfffffffffffffff8; allowed: up to 2\\^64 - 9, for"):
        Destination(vaddr=2**64 - 8).check_room(9)


def test_a_report_is_five_messages_of_8_octets():
    report = Report(65536, 5000, 1.5, 1.25, 0.000244140625)
    messages = [
        bytes.fromhex("0000000000010000"),
        bytes.fromhex("0000000000001388"),
        bytes.fromhex("3ff8000000000000"),
        bytes.fromhex("3ff4000000000000"),
        bytes.fromhex("3f30000000000000"),
    ]
    assert report.pack() == messages
    assert Report.unpack(messages) == report
    report.check(65536, 5000)


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (Report(4096, 5, 1.0, 1.0, 1.0), "ran with -s 4096, this end with 64"),
        (Report(64, 6, 1.0, 1.0, 1.0), "ran with -n 6, this end with 5"),
        (Report(64, 5, float("nan"), 1.0, 1.0), "reports nan, 1.0 MiB/s and 1.0 million"),
        (Report(64, 5, 1.0, float("inf"), 1.0), "allowed: finite numbers"),
    ],
)
def test_the_report_of_another_test_is_refused(report, message):
    with pytest.raises(PerftestError, match=message):
        report.check(64, 5)


def test_a_credit_is_little_endian():
    assert pack_credit(0x01020304) == bytes.fromhex("04030201")
    assert pack_credit(2**32 + 298) == bytes.fromhex("2a010000")
    assert unpack_credit(bytes.fromhex("2a010000")) == 298


def test_a_message_is_shown_in_short():
    assert shown(b"\x01\xff") == "01 ff"
    assert shown(bytes(30)) == "00 " * 23 + "00 and 6 bytes more"
