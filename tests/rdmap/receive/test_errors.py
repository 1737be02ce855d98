"""Each kind of segment in error stops its QP with its cause, and nothing else.

What the RDMAP receiver does with good ones is in `test_receiver.py`.
"""

from collections.abc import Callable
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from stagecoach.gateware.layouts import SegmentKind, StagStatus
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.model.rdmap import SEND_OPCODES
from tests.rdmap.receive.bench import Bench, start
from tests.rdmap.receive.model import stag_with
from tests.rdmap.receive.segments import (
    LONGEST_PAYLOAD,
    elements,
    immediate,
    invalidating,
    opcode,
    read_request,
    response,
    send,
    terminate,
    write,
)
from tests.rdmap.receive.wrong_segments import (
    Wrong,
    WrongSegments,
    each_kind,
    each_stops_its_qp_only,
)
from tests.support.verdicts import Verdicts, each_check, shows

STAG = 0x1000
TO = 2**64 - 100


def expecting(length: int, wrong: Callable[[], bytes]) -> Wrong:
    def segment(bench: Bench, rng: Any) -> bytes:
        bench.expect_read(1, STAG, TO, length)
        return wrong()

    return segment


def answered(length: int, octets: int, wrong: Callable[[], bytes]) -> Wrong:
    """A Read Response, after a segment of `octets` octets."""

    def segment(bench: Bench, rng: Any) -> bytes:
        bench.expect_read(1, STAG, TO, length)
        bench.send(1, response(STAG, TO, octets, False))
        return wrong()

    return segment


def posted(*lengths: int, wrong: Callable[[], bytes], bad: int | None = None) -> Wrong:
    def segment(bench: Bench, rng: Any) -> bytes:
        bench.post(1, elements(rng, *lengths, bad=bad))
        return wrong()

    return segment


def refused(status: StagStatus, octets: int, begun: int = 0, bad: int | None = None) -> Wrong:
    """A Send of `octets` octets after a first segment of `begun`, if it has one."""

    def segment(bench: Bench, rng: Any) -> bytes:
        bench.post(1, elements(rng, 30, 40, bad=bad))
        control = opcode(rng.choice([4, 6]))
        if begun:
            bench.send(1, invalidating(rng, StagStatus.INVALID, begun, last=False, **control))
        return invalidating(rng, status, octets, mo=begun, **control)

    return segment


def changing(first: int, then: int, last: bool) -> Wrong:
    """A Send that begins with one opcode and goes on with another."""

    def segment(bench: Bench, rng: Any) -> bytes:
        bench.post(1, elements(rng, 64))
        stag = stag_with(rng)
        bench.send(1, send(1, 0, 0, False, rsvd_ulp_word=stag, **opcode(first)))
        return send(1, 0, 9, last, rsvd_ulp_word=stag, **opcode(then))

    return segment


def with_entry(wrong: Callable[[Any], bytes]) -> Wrong:
    def segment(bench: Bench, rng: Any) -> bytes:
        bench.post(1, elements(rng, 30, 40))
        return wrong(rng)

    return segment


def inside(begun: int, octets: int, mo: int) -> Wrong:
    """Immediate Data after the first segment of a Send, which has `begun` octets."""

    def segment(bench: Bench, rng: Any) -> bytes:
        bench.post(1, elements(rng, 64))
        bench.send(1, send(1, 0, begun, False))
        return immediate(rng, 1, octets, mo=mo)

    return segment


KINDS = (
    WrongSegments(
        "CRC or Markers",
        "",
        [
            (Cause.CRC_ERROR, lambda bench, rng: SegmentKind.CRC_ERROR),
            (Cause.MARKER_MISMATCH, lambda bench, rng: SegmentKind.MARKER_ERROR),
        ],
    ),
    WrongSegments(
        "end of the stream",
        "",
        [
            (Cause.LLP_CLOSED, lambda bench, rng: SegmentKind.CLOSED),
            (Cause.LLP_CLOSED_INSIDE_FPDU, lambda bench, rng: SegmentKind.CLOSED_INSIDE),
        ],
    ),
    WrongSegments(
        "shorter than its header",
        "DDP-4.4-02",
        [
            (Cause.ULPDU_TOO_SHORT, lambda bench, rng: b""),
            (Cause.ULPDU_TOO_SHORT, lambda bench, rng: write(rng, 0)[:13]),
            (Cause.ULPDU_TOO_SHORT, lambda bench, rng: send(1, 0, 0)[:17]),
        ],
    ),
    # Versions, opcodes, queues
    WrongSegments(
        "DDP version, tagged",
        "DDP-4.1-10 RDMAP-5.1-03 RDMAP-7.2-01",
        [
            (Cause.TAGGED_DDP_VERSION, lambda bench, rng, v=v, n=n: write(rng, n, version=v))
            for v in (0, 2, 3)
            for n in (0, 9)
        ],
    ),
    WrongSegments(
        "DDP version, untagged",
        "DDP-4.1-10 RDMAP-5.3-07 RDMAP-7.2-01",
        [
            (Cause.UNTAGGED_DDP_VERSION, lambda bench, rng, v=v: send(1, 0, 9, version=v))
            for v in (0, 2, 3)
        ],
    ),
    WrongSegments(
        "RDMAP version",
        "RDMAP-5.1-03 RDMAP-5.3-07 RDMAP-7.2-03",
        [
            (Cause.RDMAP_VERSION, lambda bench, rng: write(rng, 9, rsvd_ulp=0)),
            (Cause.RDMAP_VERSION, lambda bench, rng: send(1, 0, 9, rsvd_ulp=0x83)),
        ],
    ),
    WrongSegments(
        "opcode of no untagged message",
        "RDMAP-7.2-02 RDMAP-7.2-07 DDP-4.3-03",
        [
            (Cause.UNEXPECTED_OPCODE, lambda bench, rng, n=n: send(1, 0, 9, **opcode(n)))
            for n in (0, 2, 12, 15)
        ],
    ),
    WrongSegments(
        "opcode of no tagged message",
        "RDMAP-7.2-02 RDMAP-5.1-03 DDP-4.2-03",
        [
            (Cause.UNEXPECTED_OPCODE, lambda bench, rng, n=n: write(rng, 9, **opcode(n)))
            for n in (1, 3, 4, 5, 6, 7, 10, 11, 15)
        ],
    ),
    WrongSegments(
        "Send in another queue",
        "RDMAP-3.1-02 RDMAP-5.3-07",
        [
            (Cause.UNEXPECTED_OPCODE, lambda bench, rng, n=n, qn=qn: send(1, 0, 9, qn=qn, **n))
            for n in map(opcode, sorted(SEND_OPCODES))
            for qn in (1, 2, 3)
        ],
    ),
    WrongSegments(
        "Read Request in another queue",
        "RDMAP-3.1-02 RDMAP-5.2.1-05",
        [
            (Cause.UNEXPECTED_OPCODE, lambda bench, rng, qn=qn: read_request(rng, 1, qn=qn))
            for qn in (0, 2, 3)
        ],
    ),
    WrongSegments(
        "Terminate in another queue",
        "RDMAP-3.1-02 RDMAP-5.4-06",
        [
            (Cause.UNEXPECTED_OPCODE, lambda bench, rng, qn=qn: terminate(bytes(4), qn=qn))
            for qn in (0, 1, 3)
        ],
    ),
    WrongSegments(
        "atomic in queue 0",
        "",
        [
            (Cause.UNEXPECTED_OPCODE, lambda bench, rng, n=n: send(1, 0, 9, **opcode(n)))
            for n in (10, 11)
        ],
    ),
    WrongSegments(
        "queue that there is not",
        "DDP-7.1-01 RDMAP-7.2-01",
        [
            (Cause.UNTAGGED_QN, lambda bench, rng: send(1, 0, 9, qn=4)),
            (Cause.UNTAGGED_QN, lambda bench, rng: send(1, 0, 9, qn=2**31)),
            (Cause.UNTAGGED_QN, lambda bench, rng: terminate(bytes(4), qn=4)),
        ],
    ),
    WrongSegments(
        "Send that goes on as another one",
        "RDMAP-5.3-07",
        [
            (Cause.UNEXPECTED_OPCODE, changing(first, then, last))
            for first in SEND_OPCODES
            for then in SEND_OPCODES - {first}
            for last in (False, True)
        ],
    ),
    # RDMA Writes
    WrongSegments(
        "Write to no STag",
        "DDP-7.1-09 RDMAP-5.1-03 RDMAP-7.2-01",
        [(Cause.TAGGED_STAG_INVALID, lambda bench, rng: write(rng, 9, StagStatus.INVALID))],
    ),
    WrongSegments(
        "Write to an STag of others",
        "DDP-7.1-09 RDMAP-5.1-03",
        [
            (
                Cause.TAGGED_STAG_NOT_ASSOCIATED,
                lambda bench, rng: write(rng, 1, StagStatus.NOT_ASSOCIATED),
            )
        ],
    ),
    WrongSegments(
        "Write without the right",
        "DDP-7.1-10 RDMAP-5.1-03",
        [(Cause.WRITE_NOT_PERMITTED, lambda bench, rng: write(rng, 9, StagStatus.NOT_PERMITTED))],
    ),
    WrongSegments(
        "Write that wraps",
        "DDP-7.1-13 RDMAP-5.1-03",
        [(Cause.TAGGED_TO_WRAP, lambda bench, rng: write(rng, 9, StagStatus.WRAP))],
    ),
    WrongSegments(
        "Write out of bounds",
        "DDP-7.1-11 DDP-7.1-12 RDMAP-5.1-03 RDMAP-7.2-01",
        [(Cause.TAGGED_BOUNDS, lambda bench, rng: write(rng, 9, StagStatus.BOUNDS))],
    ),
    # Sends
    WrongSegments(
        "Send without a receive",
        "DDP-7.1-02 RDMAP-5.3-07",
        [
            (Cause.UNTAGGED_NO_BUFFER, lambda bench, rng: send(1, 0, 9)),
            (Cause.UNTAGGED_NO_BUFFER, lambda bench, rng: send(1, 0, 0)),
        ],
    ),
    WrongSegments(
        "MSN of a Send",
        "DDP-7.1-05 DDP-4.3-09 RDMAP-5.3-07 RDMAP-7.2-01",
        [
            (Cause.UNTAGGED_MSN, posted(64, wrong=lambda: send(2, 0, 9))),
            (Cause.UNTAGGED_MSN, posted(64, wrong=lambda: send(0, 0, 0))),
        ],
    ),
    WrongSegments(
        "MO of a Send",
        "DDP-7.1-03 RDMAP-5.3-07 RDMAP-7.2-01",
        [
            (Cause.UNTAGGED_MO, posted(64, wrong=lambda: send(1, 1, 9))),
            (Cause.UNTAGGED_MO, posted(64, wrong=lambda: send(1, 2**31, 0))),
            (Cause.UNTAGGED_MO, posted(64, wrong=lambda: send(1, 64, 0))),
            (Cause.UNTAGGED_MO, posted(64, wrong=lambda: send(1, 65, 1))),
        ],
    ),
    WrongSegments(
        "Send that is too long",
        "DDP-7.1-04 RDMAP-5.3-04",
        [
            (Cause.UNTAGGED_TOO_LONG, posted(5, 0, 7, wrong=lambda: send(1, 0, 13))),
            (Cause.UNTAGGED_TOO_LONG, posted(wrong=lambda: send(1, 0, 1))),
            (Cause.UNTAGGED_TOO_LONG, refused(StagStatus.INVALID, 71)),
        ],
    ),
    WrongSegments(
        "receive of no memory",
        "",
        [
            (
                Cause.LOCAL_RECEIVE_PROTECTION,
                posted(5, 7, wrong=lambda: send(1, 0, 12), bad=0),
            ),
            (Cause.LOCAL_RECEIVE_PROTECTION, posted(5, 7, wrong=lambda: send(1, 0, 6), bad=1)),
            (Cause.LOCAL_RECEIVE_PROTECTION, refused(StagStatus.INVALID, 31, bad=1)),
        ],
    ),
    *(
        WrongSegments(
            f"Send that invalidates {what}",
            f"{rows} RDMAP-5.3-07",
            [
                (cause, refused(status, octets, begun))
                for octets, begun in ((0, 0), (33, 0), (0, 20), (50, 20))
            ],
        )
        for what, rows, status, cause in (
            ("no STag", "RDMAP-7.2-04", StagStatus.INVALID, Cause.INVALIDATE_REFUSED),
            (
                "an STag of others",
                "RDMAP-7.2-05 RDMAP-5.3-13 RDMAP-5.3-14",
                StagStatus.NOT_ASSOCIATED,
                Cause.INVALIDATE_NOT_ASSOCIATED,
            ),
            (
                "a shared STag",
                "RDMAP-8.1.1-07 SEC-6.4.5-01",
                StagStatus.NOT_PERMITTED,
                Cause.INVALIDATE_REFUSED,
            ),
        )
    ),
    # Immediate Data
    WrongSegments(
        "Immediate Data, tagged or in another queue",
        "EXT-6.3-04 EXT-8.2-02 RDMAP-7.2-02",
        [
            *(
                (Cause.UNEXPECTED_OPCODE, lambda bench, rng, n=n: send(1, 0, 9, **opcode(n, qn=1)))
                for n in (8, 9)
            ),
            *(
                (Cause.UNEXPECTED_OPCODE, lambda bench, rng, n=n: write(rng, 9, **opcode(n)))
                for n in (8, 9)
            ),
        ],
    ),
    WrongSegments(
        "DDP fields of Immediate Data",
        "EXT-8.2-01",
        [
            *(
                (
                    Cause.UNTAGGED_DDP_VERSION,
                    with_entry(
                        lambda rng, n=n, v=v: immediate(rng, 1, **opcode(n, version=v)),
                    ),
                )
                for n in (8, 9)
                for v in (0, 2, 3)
            ),
            (Cause.UNTAGGED_MSN, with_entry(lambda rng: immediate(rng, 2))),
            (Cause.UNTAGGED_MO, with_entry(lambda rng: immediate(rng, 1, mo=8))),
            (Cause.UNTAGGED_NO_BUFFER, lambda bench, rng: immediate(rng, 1)),
        ],
    ),
    WrongSegments(
        "RDMAP version of Immediate Data",
        "EXT-8.2-03",
        [
            (
                Cause.RDMAP_VERSION,
                with_entry(lambda rng, n=n, v=v: immediate(rng, 1, rsvd_ulp=v << 6 | n)),
            )
            for n in (8, 9)
            for v in (0, 2, 3)
        ],
    ),
    WrongSegments(
        "Immediate Data that are not 8 octets",
        "EXT7306-6.3-01 EXT-6.3-07",
        [
            (cause, with_entry(lambda rng, fields=fields: immediate(rng, 1, **fields)))
            for cause, fields in (
                (Cause.UNTAGGED_TOO_LONG, {"octets": 9}),
                (Cause.UNTAGGED_TOO_LONG, {"octets": 9, "last": False}),
                (Cause.UNTAGGED_TOO_LONG, {"octets": LONGEST_PAYLOAD}),
                (Cause.IMMEDIATE_TOO_SHORT, {"octets": 0}),
                (Cause.IMMEDIATE_TOO_SHORT, {"octets": 7}),
                (Cause.IMMEDIATE_TOO_SHORT, {"octets": 4, "last": False}),
                (Cause.IMMEDIATE_TOO_SHORT, {"last": False}),
            )
        ],
    ),
    WrongSegments(
        "Immediate Data inside a Send",
        "",
        [
            (cause, inside(begun, octets, mo))
            for cause, begun, octets, mo in (
                (Cause.UNEXPECTED_OPCODE, 0, 8, 0),
                (Cause.UNEXPECTED_OPCODE, 20, 8, 20),
                (Cause.UNEXPECTED_OPCODE, 20, 3, 20),
                (Cause.UNTAGGED_MO, 20, 8, 0),
                (Cause.UNTAGGED_TOO_LONG, 20, 9, 20),
            )
        ],
    ),
    # Read Requests
    WrongSegments(
        "DDP fields of a Read Request",
        "RDMAP-7.2-06 RDMAP-5.2.1-05 DDP-4.3-09",
        [
            *(
                (
                    Cause.UNTAGGED_DDP_VERSION,
                    lambda bench, rng, v=v: read_request(rng, 1, version=v),
                )
                for v in (0, 2, 3)
            ),
            (Cause.UNTAGGED_QN, lambda bench, rng: read_request(rng, 1, qn=4)),
            (Cause.UNTAGGED_QN, lambda bench, rng: read_request(rng, 1, qn=2**31 + 1)),
            (Cause.UNTAGGED_MSN, lambda bench, rng: read_request(rng, 0)),
            (Cause.UNTAGGED_MSN, lambda bench, rng: read_request(rng, 2)),
            (Cause.UNTAGGED_MO, lambda bench, rng: read_request(rng, 1, mo=28)),
        ],
    ),
    WrongSegments(
        "Read Request that is not 28 octets",
        "RDMAP-4.2-02 RDMAP-5.2.1-05",
        [
            (Cause.READ_REQUEST_TOO_LONG, lambda bench, rng: read_request(rng, 1) + b"\0"),
            (Cause.READ_REQUEST_TOO_SHORT, lambda bench, rng: read_request(rng, 1)[:-1]),
            (Cause.READ_REQUEST_TOO_SHORT, lambda bench, rng: read_request(rng, 1, last=False)),
        ],
    ),
    *(
        WrongSegments(
            f"Read {what}",
            f"{rows} RDMAP-5.2.1-05 RDMAP-5.2.1-13",
            [(cause, lambda bench, rng, status=status: read_request(rng, 1, 9, status))],
        )
        for what, rows, status, cause in (
            ("of no STag", "RDMAP-7.2-09", StagStatus.INVALID, Cause.READ_STAG_INVALID),
            (
                "of an STag of others",
                "RDMAP-7.2-10",
                StagStatus.NOT_ASSOCIATED,
                Cause.READ_STAG_NOT_ASSOCIATED,
            ),
            (
                "without the right",
                "RDMAP-7.2-14",
                StagStatus.NOT_PERMITTED,
                Cause.READ_NOT_PERMITTED,
            ),
            ("that wraps", "RDMAP-7.2-13", StagStatus.WRAP, Cause.READ_TO_WRAP),
            ("out of bounds", "RDMAP-7.2-11 RDMAP-7.2-12", StagStatus.BOUNDS, Cause.READ_BOUNDS),
        )
    ),
    # Read Responses
    WrongSegments(
        "Read Response that nobody asked for",
        "RDMAP-5.2.2-04",
        [
            (Cause.UNSOLICITED_READ_RESPONSE, lambda bench, rng: response(STAG, TO, 9, True)),
            (Cause.UNSOLICITED_READ_RESPONSE, lambda bench, rng: response(STAG, TO, 0, True)),
        ],
    ),
    WrongSegments(
        "Read Response to another STag",
        "DDP-4.2-07 RDMAP-5.2.2-04 RDMAP-7.2-01",
        [(Cause.READ_RESPONSE_STAG, expecting(9, lambda: response(STAG + 8, TO, 9, True)))],
    ),
    WrongSegments(
        "Read Response to other octets",
        "RDMAP-5.2.2-04 RDMAP-7.2-01",
        [
            (Cause.READ_RESPONSE_RANGE, expecting(9, lambda: response(STAG, TO + 1, 8, True))),
            (Cause.READ_RESPONSE_RANGE, expecting(9, lambda: response(STAG, TO - 2**63, 9, True))),
            # Not the next octet, though inside of what was asked for
            *(
                (
                    Cause.READ_RESPONSE_RANGE,
                    answered(9, 4, lambda to=to: response(STAG, TO + to, 4, True)),
                )
                for to in (0, 3, 5)
            ),
        ],
    ),
    WrongSegments(
        "Read Response of another length",
        "RDMAP-5.2.2-04",
        [
            (Cause.READ_RESPONSE_RANGE, expecting(9, lambda: response(STAG, TO, 10, True))),
            (Cause.READ_RESPONSE_RANGE, expecting(9, lambda: response(STAG, TO, 10, False))),
            (Cause.READ_RESPONSE_RANGE, expecting(9, lambda: response(STAG, TO, 8, True))),
            (Cause.READ_RESPONSE_RANGE, expecting(9, lambda: response(STAG, TO, 0, True))),
            (Cause.READ_RESPONSE_RANGE, expecting(0, lambda: response(STAG, TO, 1, False))),
            (Cause.READ_RESPONSE_RANGE, answered(9, 8, lambda: response(STAG, TO + 8, 0, True))),
            (Cause.READ_RESPONSE_RANGE, answered(9, 9, lambda: response(STAG, TO + 9, 1, True))),
        ],
    ),
    # Terminates
    WrongSegments(
        "Terminate",
        "",
        [(Cause.TERMINATE_RECEIVED, lambda bench, rng: terminate(bytes(4)))],
    ),
    WrongSegments(
        "Terminate that is none",
        "RDMAP-5.4-06 RDMAP-4.2-02",
        [
            (Cause.TERMINATE_MALFORMED, lambda bench, rng: terminate(b"")),
            (Cause.TERMINATE_MALFORMED, lambda bench, rng: terminate(rng.randbytes(60))),
            (Cause.TERMINATE_MALFORMED, lambda bench, rng: terminate(bytes(4), last=False)),
            (Cause.TERMINATE_MALFORMED, lambda bench, rng: terminate(bytes([0, 0, 0x42, 0]))),
        ],
    ),
    WrongSegments(
        "MSN or MO of a Terminate",
        "RDMAP-5.4-03 RDMAP-5.4-06 RDMAP-7.2-01 DDP-4.3-09",
        [
            (Cause.UNTAGGED_MSN, lambda bench, rng: terminate(bytes(4), msn=2)),
            (Cause.UNTAGGED_MSN, lambda bench, rng: terminate(bytes(4), msn=2**31 + 1, mo=1)),
            (Cause.UNTAGGED_MO, lambda bench, rng: terminate(bytes(4), mo=1, last=False)),
            (Cause.UNTAGGED_MO, lambda bench, rng: terminate(bytes(4), mo=2**31)),
        ],
    ),
)


@cocotb.test(timeout_time=2, timeout_unit="ms")
@each_kind(KINDS)
async def check_what_is_wrong_stops_its_qp_only(dut: Any, wrong: WrongSegments) -> None:
    bench = await start(dut)
    await each_stops_its_qp_only(bench, wrong.segments)


TOLD = 46
"""Octets of a ULPDU that an error tells, at most: untagged header and Read Request."""


@shows("RDMAP-3.1-07", "DDP-7.1-14", "DDP-7.1-15")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_error_is_told_with_the_header_and_the_length_of_its_segment(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    for ulpdu in (
        write(rng, 100, StagStatus.INVALID),
        write(rng, LONGEST_PAYLOAD, StagStatus.BOUNDS),
        send(1, 0, 70, qn=4),
        read_request(rng, 1, 9, StagStatus.NOT_PERMITTED),
    ):
        await bench.connect(1)
        bench.send(1, ulpdu)
        log = await bench.settle()
        (error,) = [event[1] for event in log if event[0] == "error"]
        header = error["header"].to_bytes(TOLD, "little")
        assert header[: len(ulpdu)] == ulpdu[:TOLD]
        assert (error["qp"], error["ulpdu_length"]) == (1, len(ulpdu))
        assert not [event for event in log if event[0] in ("place", "deliver")]


@shows("DDP-7.1-16", "RDMAP-7.1-05")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_behind_an_error_everything_is_dropped_and_nothing_told(dut: Any) -> None:
    """Good and wrong segments come after the first wrong one; `running` falls late."""
    bench = await start(dut)
    rng = bench.rng
    await bench.connect(1)
    bench.post(1, elements(rng, 64))
    bench.expect_read(1, STAG, TO, 9)
    wrong = write(rng, 9, StagStatus.NOT_PERMITTED)
    behind = [
        write(rng, 9),
        write(rng, 9, StagStatus.INVALID),
        send(1, 0, 9),
        send(1, 0, 9, qn=7),
        read_request(rng, 1),
        response(STAG, TO, 9, True),
        terminate(bytes(4)),
    ]
    for ulpdu in (wrong, *behind):
        bench.send(1, ulpdu)
    for kind in SegmentKind:
        if kind is not SegmentKind.FPDU:
            bench.send(1, b"", kind)
    await ClockCycles(dut.clk, 100)
    bench.set_running(1, False)
    bench.send(1, write(rng, 9))
    log = await bench.settle()
    (error,) = [event[1] for event in log if event[0] == "error"]
    assert error["cause"] == Cause.WRITE_NOT_PERMITTED
    done = [event[0] for event in log if event[0] not in ("first", "stag", "error")]
    assert done == ["release"] * (len(behind) + 2)


# The first test of each pattern waits for the compilation of the receiver and for the simulation.
pytestmark = pytest.mark.timeout(1200)


@each_check(globals())
def test_receiver(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
