"""The RDMAP receiver places and delivers what is right, and nothing of what is wrong."""

from collections.abc import Callable
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from gateware.interfaces import EVENT_HEADER_OCTETS, SegmentKind, StagStatus
from gateware.rdmap.receiver import Receiver
from hw.interface.causes import Cause
from hw.interface.queue_entries import CompletionFlags
from sim.model.errors import ErrorCode
from sim.model.rdmap import INVALIDATE_OPCODES, SEND_OPCODES, Form, Terminate
from tests.rdmap.receiver_bench import Bench, start
from tests.rdmap.receiver_model import CONFIG, AtomicSink, Entry, stag_with
from tests.rdmap.receiver_segments import (
    LONGEST_PAYLOAD,
    atomic_request,
    atomic_response,
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
from tests.rdmap.wrong_segments import Wrong, each_stops_its_qp_only
from tests.support.runner import run_cocotb


@pytest.mark.requirement("RDMAP-3.1-02", "RDMAP-3.1-05", "RDMAP-3.1-07", "RDMAP-3.2-02")
@pytest.mark.requirement("RDMAP-4.1-09", "RDMAP-4.2-02", "RDMAP-4.4-05", "RDMAP-5.1-02")
@pytest.mark.requirement("RDMAP-5.1-03", "RDMAP-5.2.1-02", "RDMAP-5.2.1-05", "RDMAP-5.2.1-13")
@pytest.mark.requirement("RDMAP-5.2.1-14", "RDMAP-5.2.2-02", "RDMAP-5.2.2-04", "RDMAP-5.3-02")
@pytest.mark.requirement("RDMAP-5.3-04", "RDMAP-5.3-07", "RDMAP-5.3-11", "RDMAP-5.3-13")
@pytest.mark.requirement("RDMAP-5.3-14", "RDMAP-5.4-03", "RDMAP-5.4-04", "RDMAP-5.4-05")
@pytest.mark.requirement("RDMAP-5.4-06", "RDMAP-6.1-06", "RDMAP-7.1-05", "RDMAP-7.2-01")
@pytest.mark.requirement("RDMAP-7.2-02", "RDMAP-7.2-03", "RDMAP-7.2-04", "RDMAP-7.2-05")
@pytest.mark.requirement("RDMAP-7.2-06", "RDMAP-7.2-07", "RDMAP-7.2-09", "RDMAP-7.2-10")
@pytest.mark.requirement("RDMAP-7.2-11", "RDMAP-7.2-12", "RDMAP-7.2-13", "RDMAP-7.2-14")
@pytest.mark.requirement("RDMAP-8.1.1-07", "DDP-4.1-01", "DDP-4.1-02", "DDP-4.1-08", "DDP-4.1-10")
@pytest.mark.requirement("DDP-4.2-03", "DDP-4.2-07", "DDP-4.3-03", "DDP-4.3-09", "DDP-4.4-02")
@pytest.mark.requirement("DDP-5.2-09", "DDP-5.2-10", "DDP-5.2-11", "DDP-5.3-05", "DDP-5.3-06")
@pytest.mark.requirement("DDP-5.4-01", "DDP-5.4-02", "DDP-5.4-03", "DDP-7.1-01", "DDP-7.1-02")
@pytest.mark.requirement("DDP-7.1-03", "DDP-7.1-04", "DDP-7.1-05", "DDP-7.1-09", "DDP-7.1-10")
@pytest.mark.requirement("DDP-7.1-11", "DDP-7.1-12", "DDP-7.1-13", "DDP-7.1-14", "DDP-7.1-15")
@pytest.mark.requirement("DDP-7.1-16", "DDP-7.2-01", "EXT-8.2-02", "EXT7306-1.1-03", "SEC-6.4.5-01")
@pytest.mark.requirement("SEC-A-01", "EXT-6-01", "EXT-6.3-02", "EXT-6.3-04", "EXT-6.3-07")
@pytest.mark.requirement("EXT7306-6.3-01", "EXT-8.2-01", "EXT-8.2-03")
@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_receiver(pattern: str) -> None:
    run_cocotb(Receiver(CONFIG), __name__, parameters={"PATTERN": pattern})


STAG = 0x1000
TO = 2**64 - 100


def expecting(length: int, wrong: Callable[[], bytes]) -> Wrong:
    def segment(bench: Bench, rng: Any) -> bytes:
        bench.expect_read(1, STAG, TO, length)
        return wrong()

    return segment


def answered(length: int, octets: int, wrong: Callable[[], bytes]) -> Wrong:
    """A Read Response, behind a segment of `octets` octets."""

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
    """A Send of `octets` octets behind a first segment of `begun`, if it has one."""

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
    """Immediate Data behind the first segment of a Send, which has `begun` octets."""

    def segment(bench: Bench, rng: Any) -> bytes:
        bench.post(1, elements(rng, 64))
        bench.send(1, send(1, 0, begun, False))
        return immediate(rng, 1, octets, mo=mo)

    return segment


WRONG: list[tuple[Cause, Wrong]] = [
    (Cause.CRC_ERROR, lambda bench, rng: SegmentKind.CRC_ERROR),
    (Cause.LLP_CLOSED, lambda bench, rng: SegmentKind.CLOSED),
    (Cause.LLP_CLOSED_INSIDE_FPDU, lambda bench, rng: SegmentKind.CLOSED_INSIDE),
    (Cause.MARKER_MISMATCH, lambda bench, rng: SegmentKind.MARKER_ERROR),
    (Cause.ULPDU_TOO_SHORT, lambda bench, rng: b""),
    (Cause.ULPDU_TOO_SHORT, lambda bench, rng: write(rng, 0)[:13]),
    (Cause.ULPDU_TOO_SHORT, lambda bench, rng: send(1, 0, 0)[:17]),
    (Cause.TAGGED_DDP_VERSION, lambda bench, rng: write(rng, 0, version=0)),
    (Cause.UNTAGGED_DDP_VERSION, lambda bench, rng: send(1, 0, 9, version=3)),
    (Cause.RDMAP_VERSION, lambda bench, rng: write(rng, 9, rsvd_ulp=0)),
    (Cause.RDMAP_VERSION, lambda bench, rng: send(1, 0, 9, rsvd_ulp=0x83)),
    *(
        (Cause.UNEXPECTED_OPCODE, lambda bench, rng, n=n: send(1, 0, 9, **opcode(n)))
        for n in (0, 2, 10, 11, 12, 15)
    ),
    *(
        (Cause.UNEXPECTED_OPCODE, lambda bench, rng, n=n: write(rng, 9, **opcode(n)))
        for n in (1, 3, 4, 5, 6, 7, 8, 10, 11, 15)
    ),
    *(
        (Cause.UNEXPECTED_OPCODE, lambda bench, rng, n=n: send(1, 0, 9, **opcode(n, qn=1)))
        for n in (4, 5, 6, 8, 9)
    ),
    *(
        (Cause.UNEXPECTED_OPCODE, changing(first, then, last))
        for first in SEND_OPCODES
        for then in SEND_OPCODES - {first}
        for last in (False, True)
    ),
    (Cause.UNEXPECTED_OPCODE, lambda bench, rng: send(1, 0, 9, qn=1)),
    (Cause.UNEXPECTED_OPCODE, lambda bench, rng: send(1, 0, 9, qn=2)),
    (Cause.UNEXPECTED_OPCODE, lambda bench, rng: read_request(rng, 1, qn=0)),
    (Cause.UNEXPECTED_OPCODE, lambda bench, rng: send(1, 0, 9, qn=3)),
    (Cause.UNTAGGED_QN, lambda bench, rng: send(1, 0, 9, qn=4)),
    (Cause.UNTAGGED_QN, lambda bench, rng: send(1, 0, 9, qn=2**31)),
    (Cause.UNEXPECTED_OPCODE, lambda bench, rng: terminate(bytes(4), qn=0)),
    (Cause.UNEXPECTED_OPCODE, lambda bench, rng: terminate(bytes(4), qn=3)),
    (Cause.UNTAGGED_QN, lambda bench, rng: terminate(bytes(4), qn=4)),
    (Cause.TERMINATE_RECEIVED, lambda bench, rng: terminate(bytes(4))),
    # In error themselves
    (Cause.TERMINATE_MALFORMED, lambda bench, rng: terminate(b"")),
    (Cause.TERMINATE_MALFORMED, lambda bench, rng: terminate(rng.randbytes(60))),
    (Cause.TERMINATE_MALFORMED, lambda bench, rng: terminate(bytes(4), last=False)),
    (Cause.TERMINATE_MALFORMED, lambda bench, rng: terminate(bytes([0, 0, 0x42, 0]))),
    (Cause.UNTAGGED_MSN, lambda bench, rng: terminate(bytes(4), msn=2)),
    (Cause.UNTAGGED_MSN, lambda bench, rng: terminate(bytes(4), msn=2**31 + 1, mo=1)),
    (Cause.UNTAGGED_MO, lambda bench, rng: terminate(bytes(4), mo=1, last=False)),
    (Cause.UNTAGGED_MO, lambda bench, rng: terminate(bytes(4), mo=2**31)),
    (Cause.TAGGED_STAG_INVALID, lambda bench, rng: write(rng, 9, StagStatus.INVALID)),
    (Cause.TAGGED_STAG_NOT_ASSOCIATED, lambda bench, rng: write(rng, 1, StagStatus.NOT_ASSOCIATED)),
    (Cause.WRITE_NOT_PERMITTED, lambda bench, rng: write(rng, 9, StagStatus.NOT_PERMITTED)),
    (Cause.TAGGED_TO_WRAP, lambda bench, rng: write(rng, 9, StagStatus.WRAP)),
    (Cause.TAGGED_BOUNDS, lambda bench, rng: write(rng, 9, StagStatus.BOUNDS)),
    (Cause.UNTAGGED_NO_BUFFER, lambda bench, rng: send(1, 0, 9)),
    (Cause.UNTAGGED_NO_BUFFER, lambda bench, rng: send(1, 0, 0)),
    (Cause.UNTAGGED_MSN, posted(64, wrong=lambda: send(2, 0, 9))),
    (Cause.UNTAGGED_MSN, posted(64, wrong=lambda: send(0, 0, 0))),
    (Cause.UNTAGGED_MO, posted(64, wrong=lambda: send(1, 1, 9))),
    (Cause.UNTAGGED_MO, posted(64, wrong=lambda: send(1, 2**31, 0))),
    (Cause.UNTAGGED_MO, posted(64, wrong=lambda: send(1, 64, 0))),
    (Cause.UNTAGGED_MO, posted(64, wrong=lambda: send(1, 65, 1))),
    (Cause.UNTAGGED_TOO_LONG, posted(5, 0, 7, wrong=lambda: send(1, 0, 13))),
    (Cause.UNTAGGED_TOO_LONG, posted(wrong=lambda: send(1, 0, 1))),
    (Cause.LOCAL_RECEIVE_PROTECTION, posted(5, 7, wrong=lambda: send(1, 0, 12), bad=0)),
    (Cause.LOCAL_RECEIVE_PROTECTION, posted(5, 7, wrong=lambda: send(1, 0, 6), bad=1)),
    *(
        (cause, refused(status, octets, begun))
        for status, cause in (
            (StagStatus.INVALID, Cause.INVALIDATE_REFUSED),
            (StagStatus.NOT_ASSOCIATED, Cause.INVALIDATE_NOT_ASSOCIATED),
            (StagStatus.NOT_PERMITTED, Cause.INVALIDATE_REFUSED),
        )
        for octets, begun in ((0, 0), (33, 0), (0, 20), (50, 20))
    ),
    (Cause.UNTAGGED_TOO_LONG, refused(StagStatus.INVALID, 71)),
    (Cause.LOCAL_RECEIVE_PROTECTION, refused(StagStatus.INVALID, 31, bad=1)),
    *(
        (
            cause,
            with_entry(
                lambda rng, name=name, fields=fields: immediate(rng, 1, **opcode(name, **fields))
            ),
        )
        for name in (8, 9)
        for cause, fields in (
            *((Cause.UNTAGGED_DDP_VERSION, {"version": version}) for version in (0, 2, 3)),
            *((Cause.RDMAP_VERSION, {"rsvd_ulp": rv << 6 | name}) for rv in (0, 2, 3)),
        )
    ),
    (Cause.UNTAGGED_NO_BUFFER, lambda bench, rng: immediate(rng, 1)),
    *(
        (cause, with_entry(lambda rng, fields=fields: immediate(rng, **({"msn": 1} | fields))))
        for cause, fields in (
            (Cause.UNTAGGED_MSN, {"msn": 2}),
            (Cause.UNTAGGED_MO, {"mo": 8}),
            (Cause.UNTAGGED_TOO_LONG, {"octets": 9}),
            (Cause.UNTAGGED_TOO_LONG, {"octets": 9, "last": False}),
            (Cause.UNTAGGED_TOO_LONG, {"octets": LONGEST_PAYLOAD}),
            (Cause.IMMEDIATE_TOO_SHORT, {"octets": 0}),
            (Cause.IMMEDIATE_TOO_SHORT, {"octets": 7}),
            (Cause.IMMEDIATE_TOO_SHORT, {"octets": 4, "last": False}),
            (Cause.IMMEDIATE_TOO_SHORT, {"last": False}),
        )
    ),
    *(
        (cause, inside(begun, octets, mo))
        for cause, begun, octets, mo in (
            (Cause.UNEXPECTED_OPCODE, 0, 8, 0),
            (Cause.UNEXPECTED_OPCODE, 20, 8, 20),
            (Cause.UNEXPECTED_OPCODE, 20, 3, 20),
            (Cause.UNTAGGED_MO, 20, 8, 0),
            (Cause.UNTAGGED_TOO_LONG, 20, 9, 20),
        )
    ),
    (Cause.UNTAGGED_MSN, lambda bench, rng: read_request(rng, 2)),
    (Cause.UNTAGGED_MO, lambda bench, rng: read_request(rng, 1, mo=28)),
    (Cause.READ_REQUEST_TOO_LONG, lambda bench, rng: read_request(rng, 1) + b"\0"),
    (Cause.READ_REQUEST_TOO_SHORT, lambda bench, rng: read_request(rng, 1)[:-1]),
    (Cause.READ_REQUEST_TOO_SHORT, lambda bench, rng: read_request(rng, 1, last=False)),
    (Cause.READ_STAG_INVALID, lambda bench, rng: read_request(rng, 1, 9, StagStatus.INVALID)),
    (
        Cause.READ_STAG_NOT_ASSOCIATED,
        lambda bench, rng: read_request(rng, 1, 9, StagStatus.NOT_ASSOCIATED),
    ),
    (
        Cause.READ_NOT_PERMITTED,
        lambda bench, rng: read_request(rng, 1, 9, StagStatus.NOT_PERMITTED),
    ),
    (Cause.READ_TO_WRAP, lambda bench, rng: read_request(rng, 1, 9, StagStatus.WRAP)),
    (Cause.READ_BOUNDS, lambda bench, rng: read_request(rng, 1, 9, StagStatus.BOUNDS)),
    (Cause.UNSOLICITED_READ_RESPONSE, lambda bench, rng: response(STAG, TO, 9, True)),
    (Cause.UNSOLICITED_READ_RESPONSE, lambda bench, rng: response(STAG, TO, 0, True)),
    (Cause.READ_RESPONSE_STAG, expecting(9, lambda: response(STAG + 8, TO, 9, True))),
    (Cause.READ_RESPONSE_RANGE, expecting(9, lambda: response(STAG, TO + 1, 8, True))),
    (Cause.READ_RESPONSE_RANGE, expecting(9, lambda: response(STAG, TO - 2**63, 9, True))),
    (Cause.READ_RESPONSE_RANGE, expecting(9, lambda: response(STAG, TO, 10, True))),
    (Cause.READ_RESPONSE_RANGE, expecting(9, lambda: response(STAG, TO, 10, False))),
    (Cause.READ_RESPONSE_RANGE, expecting(9, lambda: response(STAG, TO, 8, True))),
    (Cause.READ_RESPONSE_RANGE, expecting(9, lambda: response(STAG, TO, 0, True))),
    (Cause.READ_RESPONSE_RANGE, expecting(0, lambda: response(STAG, TO, 1, False))),
    (Cause.READ_RESPONSE_RANGE, answered(9, 8, lambda: response(STAG, TO + 8, 0, True))),
    (Cause.READ_RESPONSE_RANGE, answered(9, 9, lambda: response(STAG, TO + 9, 1, True))),
    # Not the next octet, though inside of what was asked for
    *(
        (Cause.READ_RESPONSE_RANGE, answered(9, 4, lambda to=to: response(STAG, TO + to, 4, True)))
        for to in (0, 3, 5)
    ),
]


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_every_wrong_segment_stops_its_qp_only(dut: Any) -> None:
    bench = await start(dut)
    await each_stops_its_qp_only(bench, WRONG)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_read_response_ends_with_l_and_with_all_octets(dut: Any) -> None:
    """The segment with L may be empty (RFC 5041, 5.2), and so may any other be."""
    bench = await start(dut)
    rng = bench.rng
    await bench.connect(1)
    for lengths in ((0,), (9,), (9, 0), (0, 0), (0, 9), (4, 5), (4, 0, 5, 0), (9, 0, 0), (0, 0, 0)):
        stag = stag_with(rng)
        bench.expect_read(1, stag, TO, sum(lengths))
        offset = 0
        for number, octets in enumerate(lengths):
            assert not [event for event in bench.model.events if event[0] == "deliver"]
            to = TO + offset if octets else rng.getrandbits(64)
            segment = response(
                stag if octets else rng.getrandbits(32), to, octets, number == len(lengths) - 1
            )
            bench.send(1, segment)
            offset += octets
        assert not bench.model.qps[1].stopped
        (delivered,) = [event[1] for event in bench.model.events if event[0] == "deliver"]
        assert delivered["length"] == sum(lengths)
        await bench.settle()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_every_send_completes_as_what_it_is(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    await bench.connect(1)
    msn = 1
    for kind in sorted(SEND_OPCODES):
        for lengths in ((0,), (20,), (0, 0), (20, 30), (7, 0), (0, 5, 60)):
            bench.post(1, elements(rng, 25, 0, 40))
            mo = 0
            for number, octets in enumerate(lengths):
                last = number == len(lengths) - 1
                # Its range, and those of the segments before, mean nothing.
                good = [StagStatus.OK, StagStatus.WRAP, StagStatus.BOUNDS]
                counts = last and kind in INVALIDATE_OPCODES
                stag = stag_with(rng, rng.choice(good if counts else list(StagStatus)))
                bench.send(1, send(msn, mo, octets, last, rsvd_ulp_word=stag, **opcode(kind)))
                mo += octets
            msn += 1
            assert not bench.model.qps[1].stopped
            invalidations = [event for event in bench.model.events if event[0] == "invalidate"]
            await bench.settle()
            wanted = [("invalidate", stag)] if kind in INVALIDATE_OPCODES else []
            assert invalidations == wanted
    assert msn == 25


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_immediate_data_takes_an_entry_of_any_size_and_places_nothing(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    await bench.connect(1)
    sizes = [(), (0,), (7,), (8,), (100, 0, 3), (2**32 - 1, 9)]
    for msn in range(1, 40):
        lengths = rng.choice(sizes)
        # The elements mean nothing, not even one that fails its check.
        bench.post(1, elements(rng, *lengths, bad=rng.choice([None, 0])))
        bench.send(1, immediate(rng, msn))
        bench.send(1, write(rng, rng.choice([0, 8])))
        assert not bench.model.qps[1].stopped
        delivered = [event[1] for event in bench.model.events if event[0] == "deliver"]
        assert delivered[-1]["length"] == 8
        assert delivered[-1]["flags"] & CompletionFlags.IMMEDIATE
        if rng.random() < 0.5:
            await bench.settle()
    await bench.settle()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_terminate_is_told_with_what_it_says(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    tagged, untagged = write(rng, 0), send(5, 6, 0)
    for form in Form:
        for length, ddp_header, rdmap_header in (
            (None, b"", b""),
            (20, b"", b""),
            (20, tagged, b""),
            (20, untagged, b""),
            (46, untagged, rng.randbytes(28)),
        ):
            error = ErrorCode(rng.randrange(3), rng.randrange(3), rng.randrange(256))
            said = Terminate(error, length, ddp_header, rdmap_header, form).encode()
            await bench.connect(1)
            bench.send(1, terminate(said, rsvd_ulp_word=rng.getrandbits(32)))
            name, told = bench.model.events[1]
            assert (name, told["cause"]) == ("error", Cause.TERMINATE_RECEIVED)
            header = told["header"].to_bytes(EVENT_HEADER_OCTETS, "little")
            assert header[: len(said)] == said[:EVENT_HEADER_OCTETS]
            await bench.settle()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_too_many_read_requests(dut: Any) -> None:
    bench = await start(dut)
    for ird in (0, 1, 3, CONFIG.read_queue_depth):
        await bench.connect(1, ird=ird)
        for number in range(ird + 1):
            assert not bench.model.qps[1].stopped
            bench.send(1, read_request(bench.rng, number + 1, 0))
        await bench.settle()
        assert bench.model.causes == {Cause.TOO_MANY_READ_REQUESTS}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_segments_of_a_qp_that_does_not_run_are_released(dut: Any) -> None:
    bench = await start(dut)
    for kind in SegmentKind:
        bench.send(3, write(bench.rng, 50), kind)
    await bench.settle()
    await bench.connect(3)
    bench.send(3, write(bench.rng, 50))
    await bench.settle()
    bench.set_running(3, False)
    await ClockCycles(dut.clk, 2)
    for kind in SegmentKind:
        bench.send(3, write(bench.rng, 50), kind)
    await bench.settle()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_qp_that_fails_while_its_entry_is_fetched_does_not_block(dut: Any) -> None:
    bench = await start(dut)
    await bench.connect(1)
    await bench.connect(2)
    bench.fetch = False
    bench.post(1, elements(bench.rng, 100))
    await ClockCycles(dut.clk, 5)
    bench.model.qps[1].running = False
    bench.send(1, send(1, 0, 10))
    bench.send(2, write(bench.rng, 10))
    await ClockCycles(dut.clk, 300)
    assert not bench.log
    bench.set_running(1, False)
    await bench.settle()


def random_send(bench: Bench, number: int, octets: int, wrong: bool) -> bytes:
    """A segment of a Send of any kind or Immediate Data, the next of its QP unless it is wrong."""
    rng, qp = bench.rng, bench.model.qps[number]
    entry = qp.entries[0] if qp.entries else Entry([])
    if (entry.opcode is None or wrong) and rng.random() < 0.3:
        fields = {"octets": rng.choice([0, 7, 8, 9])} if wrong else {}
        return immediate(rng, qp.sink.sends.msn, mo=entry.filled, **fields)
    room = entry.room - entry.filled
    if not wrong or rng.random() < 0.5:
        octets = rng.choice([min(octets, room), min(room, LONGEST_PAYLOAD)])
    msn, mo, kind = qp.sink.sends.msn, entry.filled, entry.opcode
    if kind is None or (wrong and rng.random() < 0.3):
        kind = rng.choice(sorted(SEND_OPCODES))
    if wrong and rng.random() < 0.2:
        msn ^= 1 << rng.randrange(32)
    if wrong and rng.random() < 0.2:
        mo ^= 1 << rng.randrange(32)
    statuses = list(StagStatus) if wrong else [StagStatus.OK, StagStatus.WRAP, StagStatus.BOUNDS]
    stag = stag_with(rng, rng.choice(statuses))
    return send(msn, mo, octets, rng.random() < 0.6, rsvd_ulp_word=stag, **opcode(kind))


def random_request(bench: Bench, number: int, wrong: bool, status: StagStatus) -> bytes:
    """A Read or Atomic Request, the next of its QP."""
    rng = bench.rng
    msn = bench.model.qps[number].sink.read_requests.msn
    if rng.random() < 0.5:
        return read_request(rng, msn, rng.choice([0, None, None]), status)
    operation = rng.randrange(16 if wrong else 3)
    misaligned = rng.randrange(8) if wrong else 0
    return atomic_request(rng, msn, operation, status, misaligned)


def random_response(bench: Bench, number: int, octets: int, wrong: bool) -> bytes:
    """What answers the oldest RDMA Read or atomic of the QP, or if it is wrong, any of them."""
    rng, qp = bench.rng, bench.model.qps[number]
    is_atomic = qp.outstanding[0] in qp.atomics if qp.outstanding else rng.random() < 0.5
    if is_atomic ^ (wrong and rng.random() < 0.3):
        msn = qp.sink.atomic_responses.msn
        return atomic_response(rng, msn ^ (wrong and rng.randrange(2)), msn=msn)
    if not qp.reads:
        return response(8, 0, octets, True)
    read = qp.reads[0]
    left = read.request.size - read.received
    octets = min(octets, left)
    to = read.request.sink_tagged_offset + read.received
    if wrong:
        to += rng.randrange(2)
        octets += rng.randrange(2)
    stag = read.request.sink_stag if octets else rng.getrandbits(32)
    return response(stag, to, octets, octets == left)


def random_segment(bench: Bench, number: int) -> bytes:
    """A segment that fits the state of its QP, unless a rare dice says otherwise."""
    rng, qp = bench.rng, bench.model.qps[number]
    octets = rng.choice([0, 1, 7, 8, rng.randrange(200), rng.randrange(LONGEST_PAYLOAD)])
    wrong = rng.random() < 0.03
    status = rng.choice(list(StagStatus)) if wrong else StagStatus.OK
    kind = rng.choice(["write", "send", "send", "request", "response"])
    if wrong and rng.random() < 0.1:
        return terminate(rng.randbytes(rng.choice([4, 20, 24, 52])))
    if kind == "request" and (len(qp.sink.read_requests.waiting) < qp.ird or wrong):
        return random_request(bench, number, wrong, status)
    if kind == "response" and (qp.outstanding or wrong):
        return random_response(bench, number, octets, wrong)
    if kind == "send" and (qp.entries or wrong):
        return random_send(bench, number, octets, wrong)
    return write(rng, octets, status)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_random_traffic_of_many_qps(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    for _ in range(60):
        for number, qp in enumerate(bench.model.qps):
            if qp.stopped and rng.random() < 0.5:
                bench.set_running(number, False)
            if (not qp.running or qp.stopped) and rng.random() < 0.6:
                await bench.connect(number, ird=rng.randrange(CONFIG.read_queue_depth + 1))
            if rng.random() < 0.5:
                bench.answer_reads(number)
            while len(bench.model.qps[number].entries) < 6 and rng.random() < 0.7:
                lengths = [
                    rng.choice([0, 1, 9, rng.randrange(2**12), rng.randrange(2**17), 2**32 - 1])
                    for _ in range(rng.randrange(5))
                ]
                bad = rng.randrange(4) if rng.random() < 0.03 else None
                bench.post(number, elements(rng, *lengths, bad=bad))
            while len(bench.model.qps[number].outstanding) < 4 and rng.random() < 0.7:
                length = rng.choice([0, 1, rng.randrange(300), rng.randrange(2**18)])
                status = StagStatus.BOUNDS if rng.random() < 0.03 else StagStatus.OK
                stag, to = stag_with(rng, status), rng.getrandbits(64)
                if rng.random() < 0.5:
                    bench.expect_read(number, stag, to, length)
                else:
                    bench.expect_atomic(number, AtomicSink(stag, to, rng.getrandbits(16)))
        await ClockCycles(dut.clk, 4)
        for _ in range(rng.randrange(25)):
            number = rng.randrange(CONFIG.qps)
            if rng.random() < 0.01:
                kind = rng.choice(list(SegmentKind))
                bench.send(number, rng.randbytes(rng.randrange(60)), kind)
            else:
                bench.send(number, random_segment(bench, number))
        await bench.settle()
