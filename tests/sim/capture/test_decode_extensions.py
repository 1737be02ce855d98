"""Atomic Operations and Immediate Data in captures: decoded, in words, and what is wrong."""

import pytest

from stagecoach.sim.model import checks, errors
from stagecoach.sim.model.atomics import (
    CMP_SWAP,
    FETCH_ADD,
    SWAP,
    WORD,
    AtomicRequest,
    AtomicResponse,
)
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.direction import Direction
from stagecoach.sim.model.rdmap import QUEUE_OF, Opcode, ReadRequest, control_octet
from stagecoach.sim.model.startup import EnhancedData, StartupFrame
from stagecoach.sim.model.terminate import terminate_for
from tests.sim.capture.decoding import (
    TO_INITIATOR,
    TO_RESPONDER,
    conversation,
    decoded,
    printed,
    problems,
    written,
)
from tests.sim.capture.tshark import Dissection, dissections

A, B = TO_RESPONDER, TO_INITIATOR
STAG, BASE = 0xAABBCCDD, 0x1000


def untagged(opcode: Opcode, msn: int, octets: bytes, **fields: object) -> bytes:
    fields = {"qn": QUEUE_OF[opcode], "rsvd_ulp": control_octet(opcode)} | fields
    return UntaggedHeader(msn=msn, **fields).encode() + octets


def request(
    msn: int, operation: int = FETCH_ADD, header: dict[str, int] | None = None, **fields: int
) -> bytes:
    fields = {"data": 5, "mask": WORD if operation == SWAP else 0} | fields
    atomic = AtomicRequest(operation, 0x70 + msn, STAG, BASE + 8 * msn, **fields)
    return untagged(Opcode.ATOMIC_REQUEST, msn, atomic.encode(), **header or {})


def response(msn: int, original: int = 0x1234, identifier: int | None = None, **fields) -> bytes:
    atomic = AtomicResponse(0x70 + msn if identifier is None else identifier, original)
    return untagged(Opcode.ATOMIC_RESPONSE, msn, atomic.encode(), **fields)


def immediate(msn: int, octets: bytes = b"IMMEDIAT", **fields) -> bytes:
    return untagged(Opcode.IMMEDIATE_DATA, msn, octets, **fields)


def read(msn: int) -> bytes:
    return untagged(Opcode.RDMA_READ_REQUEST, msn, ReadRequest(7, 0, 8, 9, 0).encode())


READ_RESPONSE = TaggedHeader(7, 0, rsvd_ulp=control_octet(Opcode.RDMA_READ_RESPONSE)).encode()
READ_RESPONSE += b"12345678"
COMPARING = {"operation": CMP_SWAP, "compare": 3, "compare_mask": 0xFF00, "data": 8, "mask": 0xFF}


def all_kinds() -> list[tuple[Direction, bytes]]:
    solicited = untagged(Opcode.IMMEDIATE_DATA_WITH_SE, 2, bytes(range(8)))
    return conversation(
        (A, request(1)),
        (A, request(2, mask=0x8000)),
        (A, request(3, SWAP)),
        (A, request(4, **COMPARING)),
        (A, request(5, CMP_SWAP, mask=WORD)),
        *((B, response(msn, msn)) for msn in range(1, 6)),
        (A, immediate(1)),
        (A, solicited),
    )


def test_every_message_is_told_in_words(tmp_path):
    lines = printed(written(tmp_path / "all.pcapng", all_kinds()))[3:]
    where = [
        f"at STag 0xaabbccdd, TO {0x1000 + 8 * n:#x}, identifier {0x70 + n:#x}" for n in range(6)
    ]
    expected = [
        f"FetchAdd of 0x5 {where[1]}",
        f"FetchAdd of 0x5 in fields that end at the bits 0x8000 {where[2]}",
        f"Swap with 0x5 {where[3]}",
        f"CmpSwap of 0x3 in the bits 0xff00 with 0x8 in the bits 0xff {where[4]}",
        f"CmpSwap of 0x0 with 0x5 {where[5]}",
        *(f"original value {n:#x}, identifier {0x70 + n:#x}" for n in range(1, 6)),
        "data 494d4d4544494154",
        "data 0001020304050607",
    ]
    assert len(lines) == len(expected)
    for line, words in zip(lines, expected, strict=True):
        assert f", MO 0, {words}, CRC good" in line
    names = ["Atomic Request"] * 5 + ["Atomic Response"] * 5
    names += ["Immediate Data", "Immediate Data with SE"]
    assert all(name in line for name, line in zip(names, lines, strict=True))
    assert "✗" not in "".join(lines)


def test_the_json_has_every_field(tmp_path):
    items = decoded(written(tmp_path / "all.pcapng", all_kinds()))[2:]
    assert items[3]["atomic_request"] == {
        "operation": 2,
        "identifier": 0x74,
        "stag": STAG,
        "tagged_offset": 0x1020,
        "add_or_swap_data": 8,
        "add_or_swap_mask": 0xFF,
        "compare_data": 3,
        "compare_mask": 0xFF00,
        "reserved": 0,
        "words": "CmpSwap of 0x3 in the bits 0xff00 with 0x8 in the bits 0xff",
    }
    assert items[6]["atomic_response"] == {"identifier": 0x72, "original": 2}
    assert [item["immediate_data"] for item in items[-2:]] == [
        "494d4d4544494154",
        "0001020304050607",
    ]
    for number, item in enumerate(items):
        assert (item["atomic_request"] is not None) == (number < 5)
        assert (item["atomic_response"] is not None) == (5 <= number < 10)
        assert (item["immediate_data"] is not None) == (number >= 10)
        assert (item["read_request"], item["terminate"], item["problems"]) == (None, None, [])


def assert_request_agrees(ours: dict[str, int], theirs: Dissection) -> None:
    names = [
        ("operation", "opcode"),
        ("identifier", "request_identifier"),
        ("stag", "remote_stag"),
        ("tagged_offset", "remote_tagged_offset"),
    ]
    if ours["operation"] != SWAP:
        # tshark does not know the Swap of the draft.
        add = "add" if ours["operation"] == FETCH_ADD else "swap"
        names += [
            ("add_or_swap_data", f"{add}_data"),
            ("add_or_swap_mask", f"{add}_mask"),
            ("compare_data", "compare_data"),
            ("compare_mask", "compare_mask"),
        ]
    for our_name, their_name in names:
        assert ours[our_name] == theirs.number(f"iwarp_rdma.atomic.{their_name}")


def test_tshark_decodes_the_same(tmp_path):
    path = written(tmp_path / "all.pcapng", all_kinds())
    items, theirs = decoded(path)[2:], dissections(path)[2:]
    for item, dissection in zip(items, theirs, strict=True):
        for name in ("qn", "msn", "mo"):
            assert item["ddp"][name] == dissection.number(f"iwarp_ddp.{name}")
        assert item["rdmap"]["opcode"] == dissection.number("iwarp_rdma.opcode")
        named = dissection.names["iwarp_rdma.opcode"]
        if item["immediate_data"] is None:
            assert item["message"] in named
        else:
            assert "Unknown" in named, "tshark knows Immediate Data by now: compare its fields"
        if item["atomic_request"] is not None:
            assert_request_agrees(item["atomic_request"], dissection)
        if item["atomic_response"] is not None:
            ours = item["atomic_response"]
            name = "iwarp_rdma.atomic.original"
            assert ours["identifier"] == dissection.number(f"{name}_request_identifier")
            assert ours["original"] == dissection.number(f"{name}_remote_data_value")


ASK, ANSWER = (A, request(1)), (B, response(1))
# Each: FPDUs; which of them (from 0) has which problem. All others have none.
CASES: dict[str, tuple[list[tuple[Direction, bytes]], int, tuple[str, str | None]]] = {
    "AOpCode": ([(A, request(1, 3))], 0, ("RFC 7306, 5.2.1 (4)", "0/2/06")),
    "QN of request": (
        [(A, request(1, header={"qn": 3}))],
        0,
        ("RFC 5040, 4.1, Figure 4", "0/2/06"),
    ),
    "QN of response": ([ASK, (B, response(1, qn=1))], 1, ("RFC 5040, 4.1, Figure 4", "0/2/06")),
    "QN of Immediate Data": ([(A, immediate(1, qn=1))], 0, ("RFC 5040, 4.1, Figure 4", "0/2/06")),
    "long request": (
        [(A, request(1) + b"\0")],
        0,
        ("RFC 5041, 7.1 (4)", "1/2/05"),
    ),
    "short request": ([(A, request(1)[:-1])], 0, ("RFC 7306, 5.2.1", "0/2/FF")),
    "request MSN": ([(A, request(2)), (A, request(3))], 0, ("RFC 5041, 7.1 (5)", "1/2/03")),
    "unasked response": ([(A, immediate(1)), ANSWER], 1, ("RFC 7306, 5.2.2 (5)", "1/2/02")),
    "response twice": (
        [ASK, ANSWER, (B, response(2))],
        2,
        ("RFC 7306, 5.2.2 (5)", "1/2/02"),
    ),
    "response MSN": (
        [ASK, (A, request(2)), (B, response(2, identifier=0x71)), (B, response(3, 1, 0x72))],
        2,
        ("RFC 5041, 7.1 (5)", "1/2/03"),
    ),
    "long response": ([ASK, (B, response(1) + b"\0")], 1, ("RFC 5041, 7.1 (4)", "1/2/05")),
    "short response": ([ASK, (B, response(1)[:-1])], 1, ("RFC 7306, 5.2.2", "0/2/FF")),
    "identifier": (
        [ASK, (B, response(1, identifier=1)), (A, request(2)), (B, response(2))],
        1,
        ("RFC 7306, 5.2.2 (7)", "0/2/FF"),
    ),
    "long Immediate Data": (
        [(A, immediate(1, bytes(9))), (A, immediate(2))],
        0,
        ("RFC 5041, 7.1 (4)", "1/2/05"),
    ),
    "short Immediate Data": (
        [(A, immediate(1, bytes(7))), (A, immediate(2))],
        0,
        ("RFC 7306, 6.3", "0/2/FF"),
    ),
    "Immediate Data not last": ([(A, immediate(1, last=False))], 0, (checks.CHOICE, "0/2/FF")),
    "overtaken read": (
        [(A, read(1)), (A, request(2)), (B, response(1, identifier=0x72)), (B, READ_RESPONSE)],
        2,
        ("RFC 7306, 5.2.2 (5)", "1/2/02"),
    ),
    "overtaken atomic": (
        [ASK, (A, read(2)), (B, READ_RESPONSE), ANSWER],
        2,
        ("RFC 5040, 5.2.2", "0/2/06"),
    ),
    "reserved": ([(A, request(1, reserved=1))], 0, ("RFC 7306, 5.2.1", None)),
    "Compare Data": ([(A, request(1, compare=1))], 0, ("RFC 7306, 5.2.1", None)),
    "Compare Mask": ([(A, request(1, SWAP, compare_mask=1))], 0, ("RFC 7306, 5.2.1", None)),
    "Swap Mask": ([(A, request(1, SWAP, mask=1))], 0, ("RFC 7306, 5.2.1", None)),
    "Invalidate STag": (
        [(A, request(1, header={"rsvd_ulp_word": 1}))],
        0,
        ("RFC 7306, 4.1", None),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_wrong_fpdu_has_the_one_problem(tmp_path, name):
    ulpdus, place, problem = CASES[name]
    items = decoded(written(tmp_path / "x.pcapng", conversation(*ulpdus)))[2:]
    assert len(items) == len(ulpdus)
    for number, item in enumerate(items):
        assert problems([item]) == ([problem] if number == place else [])


def test_one_request_more_than_the_ird_is_a_problem(tmp_path):
    enhanced = EnhancedData(ird=2, ord=2)
    log = conversation(
        (A, read(1)),
        (A, request(2)),
        (A, request(3)),
        request=StartupFrame(reply=False, enhanced=enhanced),
        reply=StartupFrame(reply=True, enhanced=enhanced),
    )
    items = decoded(written(tmp_path / "x.pcapng", log))[2:]
    assert [problems([item]) for item in items] == [[], [], [("RFC 5040, 6.1", "1/2/02")]]


def test_a_terminate_about_an_atomic_request_names_it(tmp_path):
    asked = request(1)
    terminate = terminate_for(errors.RDMAP_CATASTROPHIC_STREAM, asked)
    ulpdu = untagged(Opcode.TERMINATE, 1, terminate.encode())
    path = written(tmp_path / "x.pcapng", conversation((A, asked), (B, ulpdu)))
    item = decoded(path)[-1]
    assert item["terminate"]["error"] == "0/2/07"
    assert item["terminate"]["about"] == 1
    assert "about a segment of 70 bytes: Atomic Request, QN 1, MSN 1" in printed(path)[-1]
