"""What the decoder calls wrong, and by which section; and that it finds its way afterwards."""

from dataclasses import replace
from pathlib import Path

import pytest

from stagecoach.sim.model import checks, mpa
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.direction import Direction
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.rdmap import Form, Opcode, ReadRequest, Terminate, control_octet
from stagecoach.sim.model.startup import EnhancedData, StartupFrame
from tests.sim.capture.decoding import (
    TO_INITIATOR,
    TO_RESPONDER,
    conversation,
    decoded,
    printed,
    problems,
    startup,
    written,
)

REQUEST = StartupFrame(reply=False)
REPLY = StartupFrame(reply=True)


def send(msn: int, octets: bytes = b"", opcode: int = Opcode.SEND, **fields: object) -> bytes:
    fields = {"qn": 0, "rsvd_ulp": control_octet(opcode)} | fields
    return UntaggedHeader(msn=msn, **fields).encode() + octets


def write(octets: bytes = b"", opcode: int = Opcode.RDMA_WRITE, **fields: object) -> bytes:
    fields = {"stag": 7, "tagged_offset": 0, "rsvd_ulp": control_octet(opcode)} | fields
    return TaggedHeader(**fields).encode() + octets


def read(msn: int, size: int = 8, cut: int = 28, **fields: object) -> bytes:
    request = ReadRequest(7, 0x100, size, 9, 0).encode()[:cut]
    return send(msn, request, Opcode.RDMA_READ_REQUEST, **{"qn": 1, **fields})


def response(octets: bytes = b"12345678", to: int = 0x100, **fields: object) -> bytes:
    return write(octets, Opcode.RDMA_READ_RESPONSE, **{"tagged_offset": to, **fields})


COMPLAINT = Terminate(ErrorCode(1, 2, 3)).encode()


def terminate(header: bytes = COMPLAINT, msn: int = 1) -> bytes:
    return send(msn, header, Opcode.TERMINATE, qn=2)


A, B = TO_RESPONDER, TO_INITIATOR
ASK, ANSWER = (A, read(1)), (B, response())
# Each: FPDUs; which of them (from 0) has which problem. All others have none.
CASES: dict[str, tuple[list[tuple[Direction, bytes]], int, tuple[str, str | None]]] = {
    "tagged DV": ([(A, write(version=0))], 0, ("RFC 5041, 4.1", "1/1/04")),
    "untagged DV": ([(A, send(1, version=3))], 0, ("RFC 5041, 4.1", "1/2/06")),
    "RV": ([(A, send(1, rsvd_ulp=0x83))], 0, ("RFC 5040, 7.2", "0/2/05")),
    "opcode": ([(A, send(1, opcode=12))], 0, ("RFC 5040, 7.2", "0/2/06")),
    "T": ([(A, send(1, opcode=0))], 0, ("RFC 5040, 4.1, Figure 4", "0/2/06")),
    "QN": ([(A, send(1, qn=4))], 0, ("RFC 5041, 7.1 (1)", "1/2/01")),
    "QN of opcode": ([(A, send(1, qn=1))], 0, ("RFC 5040, 4.1, Figure 4", "0/2/06")),
    "short": ([(A, b"\xc1\x40" + bytes(8))], 0, ("RFC 5041, 4.2 and 4.3", "2/0/03")),
    "MSN": (
        [(A, send(1)), (A, send(3)), (A, send(4)), (A, send(5))],
        1,
        ("RFC 5041, 7.1 (5)", "1/2/03"),
    ),
    "MO": (
        [(A, send(1, b"ab", last=False)), (A, send(1, b"cd", mo=3)), (A, send(2))],
        1,
        (checks.CHOICE, "1/2/04"),
    ),
    "MO, then on": (
        [
            (A, send(1, b"ab", last=False)),
            (A, send(1, b"cd", mo=3, last=False)),
            (A, send(1, b"e", mo=5)),
            (A, send(2)),
        ],
        1,
        (checks.CHOICE, "1/2/04"),
    ),
    "Send changes": (
        [(A, send(1, b"ab", last=False)), (A, send(1, b"c", Opcode.SEND_WITH_SE, mo=2))],
        1,
        ("RFC 5041, 4.3", "0/2/06"),
    ),
    "short Read Request": ([(A, read(1, cut=27))], 0, ("RFC 5040, 4.4", "0/2/FF")),
    "Read Request not last": ([(A, read(1, last=False))], 0, (checks.CHOICE, "0/2/FF")),
    "Read Request MSN": (
        [(A, read(2)), (A, read(3)), (B, response())],
        0,
        ("RFC 5041, 7.1 (5)", "1/2/03"),
    ),
    "unasked Read Response": ([(A, write()), ANSWER], 1, ("RFC 5040, 5.2.2", "0/2/06")),
    "Read Response twice": ([ASK, ANSWER, ANSWER], 2, ("RFC 5040, 5.2.2", "0/2/06")),
    "Read Response STag": (
        [ASK, (B, response(stag=8)), (A, read(2)), ANSWER],
        1,
        ("RFC 5040, 5.2.2", "1/1/00"),
    ),
    "Read Response TO": ([ASK, (B, response(to=0))], 1, ("RFC 5040, 5.2.2", "1/1/01")),
    "Read Response long": ([ASK, (B, response(b"x" * 9))], 1, ("RFC 5040, 5.2.2", "1/1/01")),
    "Read Response short": ([ASK, (B, response(b"x"))], 1, ("RFC 5040, 5.2.2", "1/1/01")),
    "malformed Terminate": ([(A, terminate(bytes(5)))], 0, ("RFC 5040, 4.8", "0/2/FF")),
    "second Terminate MSN": ([(A, terminate(msn=2))], 0, ("RFC 5041, 7.1 (5)", "1/2/03")),
    "after a Terminate": ([(A, terminate()), (A, send(1))], 1, ("RFC 5040, 5.4", None)),
    "responder first": ([(B, send(1)), (A, send(1))], 0, ("RFC 5044, 7.1.2 (4)", None)),
    "DDP reserved": ([(A, send(1, reserved=4))], 0, ("RFC 5041, 4.1", None)),
    "RDMAP reserved": ([(A, send(1, rsvd_ulp=0x53))], 0, ("RFC 5040, 4.1", None)),
    "Invalidate STag": ([(A, send(1, rsvd_ulp_word=1))], 0, ("RFC 5040, 4.1", None)),
}


@pytest.mark.parametrize("name", CASES)
def test_one_wrong_fpdu_has_the_one_problem(tmp_path, name):
    ulpdus, place, problem = CASES[name]
    items = decoded(written(tmp_path / "x.pcapng", conversation(*ulpdus)))[2:]
    assert len(items) == len(ulpdus)
    for number, item in enumerate(items):
        assert problems([item]) == ([problem] if number == place else [])
    ends_stream = problem[1] is not None
    direction = items[place]["direction"]
    for item in items[place + 1 :]:
        assert item["dropped"] == (ends_stream and item["direction"] == direction)
    (line,) = [line for line in printed(tmp_path / "x.pcapng") if "✗" in line]
    assert line.endswith(f"({problem[0]})")


def fpdu_log(*fpdus: bytes, reply: StartupFrame = REPLY) -> list[tuple[Direction, bytes]]:
    return [*startup(REQUEST, reply), *((TO_RESPONDER, fpdu) for fpdu in fpdus)]


def flipped(fpdu: bytes, octet: int) -> bytes:
    changed = bytearray(fpdu)
    changed[octet] ^= 0x40
    return bytes(changed)


def found(tmp_path: Path, log: list[tuple[Direction, bytes]]) -> list[tuple[str, str | None]]:
    return problems(decoded(written(tmp_path / "x.pcapng", log)))


def test_a_wrong_crc_does_not_hide_what_follows(tmp_path):
    fpdus = [mpa.frame_fpdu(send(msn, b"data")) for msn in (1, 2, 3)]
    log = fpdu_log(fpdus[0], flipped(fpdus[1], -1), fpdus[2])
    items = decoded(written(tmp_path / "x.pcapng", log))
    assert [problems([item]) for item in items[2:]] == [[], [("RFC 5044, 4.4", "2/0/02")], []]
    assert [item["crc_good"] for item in items[2:]] == [True, False, True]
    assert [item["dropped"] for item in items[2:]] == [False, False, True]


def test_a_wrong_length_ends_decoding_at_nonsense(tmp_path):
    fpdus = [mpa.frame_fpdu(write(bytes(number * 40))) for number in range(5)]
    # ULPDU_Length 16 in place of 54: the CRC is looked for in the payload, an FPDU after it.
    broken = b"\0\x10" + fpdus[1][2:]
    items = decoded(written(tmp_path / "x.pcapng", fpdu_log(fpdus[0], broken, *fpdus[2:])))
    assert [item["kind"] for item in items[2:4]] == ["fpdu", "fpdu"]
    assert problems(items[3:4]) == [("RFC 5044, 4.4", "2/0/02")]
    assert items[-1]["kind"] == "remark"
    assert items[-1]["problems"][0]["source"] == "RFC 5044, 6"
    assert len(items) < 8


def test_an_impossible_length_is_told_at_once(tmp_path):
    log = fpdu_log(mpa.frame_fpdu(write()), b"\xff\xff" + bytes(100), mpa.frame_fpdu(write()))
    assert found(tmp_path, log) == [("RFC 5044, 3", "2/0/02"), ("RFC 5044, 6", None)]


def test_wrong_markers(tmp_path):
    reply = StartupFrame(reply=True, markers=True)
    fpdu = bytearray(mpa.frame_fpdu(write(bytes(1000)), markers=True))
    fpdu[515] ^= 4
    good_crc = bytes(fpdu[:-4]) + mpa.crc32c_octets(fpdu[:-4])
    log = fpdu_log(good_crc, reply=reply)
    assert found(tmp_path, log) == [("RFC 5044, 8 (3)", "2/0/03")]
    assert found(tmp_path, fpdu_log(bytes(fpdu), reply=reply)) == [
        ("RFC 5044, 4.4", "2/0/02"),
        ("RFC 5044, 8 (3)", "2/0/03"),
    ]
    fpdu[515] ^= 4
    fpdu[512] = 1
    good_crc = bytes(fpdu[:-4]) + mpa.crc32c_octets(fpdu[:-4])
    assert found(tmp_path, fpdu_log(good_crc, reply=reply)) == [("RFC 5044, 4.2", None)]


def test_a_pad_that_is_not_zero(tmp_path):
    covered = mpa.frame_fpdu(write(b"a"))[:-7] + b"\1\2\3"
    log = fpdu_log(covered + mpa.crc32c_octets(covered))
    assert found(tmp_path, log) == [("RFC 5044, 4.1", None)]


def test_more_reads_than_the_ird(tmp_path):
    request = StartupFrame(reply=False, enhanced=EnhancedData(ird=1, ord=2))
    reply = StartupFrame(reply=True, enhanced=EnhancedData(ird=2, ord=1))
    reads = [(A, read(1)), (A, read(2)), (B, response()), (A, read(3)), (A, read(4))]
    log = conversation(*reads, request=request, reply=reply)
    assert found(tmp_path, log) == [("RFC 5040, 6.1", "1/2/02")]
    # In the other direction it is the ORD of the responder.
    reads = [(A, write()), (B, read(1)), (A, response()), (B, read(2)), (B, read(3))]
    log = conversation(*reads, request=request, reply=reply)
    assert found(tmp_path, log) == [("RFC 5040, 6.1", "1/2/02")]


def peer_to_peer(first: bytes, **offers: bool) -> list[tuple[Direction, bytes]]:
    offered = EnhancedData(ird=1, ord=1, peer_to_peer=True, **offers)
    return conversation(
        (TO_RESPONDER, first),
        request=StartupFrame(reply=False, enhanced=replace(offered, rtr_send=True)),
        reply=StartupFrame(reply=True, enhanced=offered),
    )


@pytest.mark.parametrize(
    ("first", "offers", "good"),
    [
        (write(), {"rtr_write": True}, True),
        (write(b"x"), {"rtr_write": True}, False),
        (write(), {"rtr_read": True}, False),
        (read(1, size=0), {"rtr_read": True}, True),
        (read(1, size=1), {"rtr_read": True}, False),
        (send(1), {"rtr_send": True}, True),
        (send(1), {"rtr_write": True}, False),
        (terminate(bytes.fromhex("20070000")), {"rtr_write": True}, True),
    ],
)
def test_the_rtr_frame(tmp_path, first, offers, good):
    log = peer_to_peer(first, **offers)
    assert found(tmp_path, log) == ([] if good else [("RFC 6581, 9.2", None)])
    last = decoded(tmp_path / "x.pcapng")[-1]
    assert last["ready_to_receive"] == (good and last["terminate"] is None)


STARTUP_CASES = {
    "no key": ([(A, b"MPA ID Rex Frame" + bytes(4))], [("RFC 5044, 7.1.1", "2/0/04")]),
    "revision": (
        [(A, REQUEST.encode()[:17] + b"\3\0\0")],
        [("RFC 5044, 7.1.1", "2/0/04")],
    ),
    "PD_Length": (
        [(A, REQUEST.encode()[:18] + b"\2\1")],
        [("RFC 5044, 7.1.1", "2/0/04")],
    ),
    "a Reply first": ([(A, REPLY.encode())], [("RFC 5044, 7.1.2 (1)", None)]),
    "two Requests": (startup(REQUEST, REQUEST), [("RFC 5044, 7.1.2 (8)", None)]),
    "garbage as Reply": (
        [(A, REQUEST.encode()), (B, b"HTTP/1.1 400 Bad Request")],
        [("RFC 5044, 7.1.1", "2/0/04")],
    ),
    "other revision": (
        startup(
            StartupFrame(reply=False, enhanced=EnhancedData(1, 1)),
            StartupFrame(reply=True, revision=1),
        ),
        [("RFC 6581, 6", None), ("RFC 6581, 10", None)],
    ),
    "half a Request": ([(A, REQUEST.encode()[:15])], [("RFC 5044, 8 (1)", None)]),
    "half an FPDU": (fpdu_log(mpa.frame_fpdu(write())[:9]), [("RFC 5044, 8 (1)", None)]),
    "no Reply": ([(A, REQUEST.encode()), (A, mpa.frame_fpdu(write()))], [("", None)]),
    "FPDU before the Reply": (
        [(A, REQUEST.encode()), (A, mpa.frame_fpdu(write())), (B, REPLY.encode())],
        [("RFC 5044, 7.1.2 (3)", None)],
    ),
}


@pytest.mark.parametrize("name", STARTUP_CASES)
def test_startup_problems(tmp_path, name):
    log, expected = STARTUP_CASES[name]
    assert found(tmp_path, log) == expected
    assert sum("✗" in line for line in printed(tmp_path / "x.pcapng")) == 1


def test_a_rejecting_reply(tmp_path):
    reply = StartupFrame(reply=True, reject=True, private_data=b"no")
    items = decoded(written(tmp_path / "x.pcapng", startup(REQUEST, reply)))
    assert (items[1]["kind"], items[1]["reject"], items[1]["problems"]) == ("reply", True, [])
    assert "rejected" in printed(tmp_path / "x.pcapng")[-1]


def test_a_terminate_says_which_fpdu_it_is_about_and_in_which_form(tmp_path):
    bad = write(b"x" * 10, stag=0xDEAD)
    for form in Form:
        header = Terminate(ErrorCode(1, 1, 0), len(bad), bad[:14], b"", form).encode()
        log = conversation((A, write()), (A, bad), (A, write()), (B, terminate(header)))
        written(tmp_path / "x.pcapng", log)
        last = decoded(tmp_path / "x.pcapng")[-1]["terminate"]
        assert (last["error"], last["about"], last["form"]) == ("1/1/00", 2, form.value)
        line = printed(tmp_path / "x.pcapng")[-1]
        assert "invalid STag (tagged buffer), 1/1/00 of RFC 5041, 7.2" in line
        assert "RDMA Write, STag 0x0000dead, TO 0x0 (FPDU 2 of the peer)" in line
        assert ("in the octet order of Linux siw" in line) == (form is Form.SIW)


def test_empty_last_segments_are_no_problem(tmp_path):
    log = conversation(
        (A, read(1)),
        (B, response(last=False)),
        (B, response(b"", to=0x108)),
        (A, send(1, b"12", last=False)),
        (A, send(1, b"", mo=2)),
        (A, read(2)),
        (B, response()),
    )
    written(tmp_path / "x.pcapng", log)
    assert all(item["problems"] == [] for item in decoded(tmp_path / "x.pcapng"))


@pytest.mark.requirement("MPA2-8-01", "MPA2-9.3-01")
@pytest.mark.parametrize(
    ("control", "error"), [("20050000", "2/0/05"), ("20060000", "2/0/06"), ("20070000", "2/0/07")]
)
def test_a_terminate_of_a_responder_names_what_failed_at_the_startup(tmp_path, control, error):
    octets = UntaggedHeader(2, 1, rsvd_ulp=0x47).encode() + bytes.fromhex(control)
    written(tmp_path / "x.pcapng", conversation((A, write(b"")), (B, octets)))
    last = decoded(tmp_path / "x.pcapng")[-1]
    assert (last["terminate"]["error"], last["terminate"]["form"]) == (error, Form.RFC.value)
    assert last["problems"] == []
    assert f"{error} of RFC 6581, 8" in printed(tmp_path / "x.pcapng")[-1]


def test_lines(tmp_path):
    log = conversation(
        (A, send(1, b"12345", Opcode.SEND_WITH_SE_AND_INVALIDATE, rsvd_ulp_word=0xABC)),
        (B, read(1, size=4096)),
        (A, write(bytes(600), last=False)),
        request=StartupFrame(reply=False, private_data=b"hello"),
        reply=StartupFrame(reply=True, markers=True),
    )
    assert printed(written(tmp_path / "x.pcapng", log)) == [
        "connection 1: 10.0.0.1:49152 → 10.0.0.2:5044",
        "     4    0.000000 1→ MPA Request           revision 2, no Markers, CRC wanted, "
        "5 bytes of private data",
        "     5    0.001000 1← MPA Reply             revision 2, Markers wanted, CRC wanted, "
        "no private data",
        "     6    0.002000 1→ Send with SE and Invalidate  QN 0, MSN 1, MO 0, invalidates STag "
        "0x00000abc, 5 bytes, 1 Marker, CRC good",
        "     7    0.003000 1← RDMA Read Request     QN 1, MSN 1, MO 0, 4096 bytes from STag "
        "0x00000009, TO 0x0 into STag 0x00000007, TO 0x100, CRC good",
        "     8    0.004000 1→ RDMA Write            STag 0x00000007, TO 0x0, more to come, "
        "600 bytes, 1 Marker, CRC good",
    ]
