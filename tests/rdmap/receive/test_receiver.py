"""The RDMAP receiver places and delivers what is right.

What it does with what is wrong is in `test_errors.py`.
"""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from stagecoach.gateware.layouts import DeliveryKind, SegmentKind, StagStatus
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import EVENT_HEADER_OCTETS, CompletionFlags, Rights
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.rdmap import (
    INVALIDATE_OPCODES,
    SEND_OPCODES,
    SOLICITED_OPCODES,
    Form,
    Terminate,
)
from tests.rdmap.receive.bench import start
from tests.rdmap.receive.model import ADDRESS_MASK, CONFIG, stag_with
from tests.rdmap.receive.segments import (
    elements,
    immediate,
    opcode,
    read_request,
    response,
    send,
    terminate,
    write,
)
from tests.rdmap.receive.traffic import random_traffic
from tests.support.verdicts import Verdicts, each_check, shows

TO = 2**64 - 100


@shows("DDP-4.1-01", "RDMAP-5.1-02")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_write_is_placed_where_it_says_and_not_delivered(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    await bench.connect(1)
    bench.post(1, elements(rng, 64))
    for last in (False, True):
        stag, to = stag_with(rng), rng.getrandbits(64)
        bench.send(1, write(rng, 50, stag=stag, tagged_offset=to, last=last))
        log = [event for event in await bench.settle() if event[0] != "first"]
        (_, request), (_, placement) = log
        assert (request["stag"], request["tagged_offset"], request["octets"]) == (stag, to, 50)
        assert request["rights"] == Rights.REMOTE_WRITE
        assert (placement["address"], placement["octets"]) == (to ^ ADDRESS_MASK, 50)
    assert len(bench.rings[1].entries) == 1


@shows("DDP-4.1-02")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_send_is_placed_in_the_elements_of_its_receive(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    await bench.connect(1)
    one, two = elements(rng, 30, 40)
    bench.post(1, [one, two])
    bench.send(1, send(1, 0, 50))
    places = [event[1] for event in await bench.settle() if event[0] == "place"]
    assert [(place["address"], place["octets"]) for place in places] == [
        (one.tagged_offset ^ ADDRESS_MASK, 30),
        (two.tagged_offset ^ ADDRESS_MASK, 20),
    ]


@shows("DDP-5.2-09", "DDP-5.2-10", "DDP-5.2-11")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_stag_and_to_of_a_write_without_octets_are_not_checked(dut: Any) -> None:
    bench = await start(dut)
    await bench.connect(1)
    for status in StagStatus:
        bench.send(1, write(bench.rng, 0, status))
        log = await bench.settle()
        assert {event[0] for event in log} <= {"first", "release"}, status
    assert not bench.model.qps[1].stopped


@shows("RDMAP-4.4-05", "RDMAP-5.2.1-04")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_read_request_is_handed_over_and_takes_no_receive(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    await bench.connect(1)
    bench.post(1, elements(rng, 64))
    for msn, size in enumerate((0, 1, 2**31, 2**32 - 1), 1):
        ulpdu = read_request(rng, msn, size)
        bench.send(1, ulpdu)
        log = await bench.settle()
        ((_, number, item),) = [event for event in log if event[0] == "push"]
        (delivery,) = [event[1] for event in log if event[0] == "deliver"]
        assert (number, delivery["kind"]) == (1, DeliveryKind.REQUEST.value)
        of = item["of"]
        assert ulpdu[18:] == b"".join(
            (
                of["sink_stag"].to_bytes(4, "big"),
                of["sink_tagged_offset"].to_bytes(8, "big"),
                of["length"].to_bytes(4, "big"),
                of["source_stag"].to_bytes(4, "big"),
                of["source_tagged_offset"].to_bytes(8, "big"),
            )
        )
        bench.answer_reads(1)
    assert len(bench.rings[1].entries) == 1


@shows("RDMAP-5.2.1-14")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_source_of_a_read_of_no_octets_is_not_checked(dut: Any) -> None:
    bench = await start(dut)
    await bench.connect(1)
    for msn, status in enumerate(StagStatus, 1):
        bench.send(1, read_request(bench.rng, msn, 0, status))
        log = await bench.settle()
        assert [event[0] for event in log if event[0] in ("push", "error", "stag")] == ["push"]
        bench.answer_reads(1)


@shows("DDP-5.3-05", "DDP-5.3-06", "DDP-5.4-01", "RDMAP-5.3-02")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_each_send_takes_one_receive_and_is_delivered_once_in_order(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    await bench.connect(1)
    cuts = ((5,), (0,), (5, 6, 7), (3, 0), (0, 9), (64,))
    for _ in cuts:
        bench.post(1, elements(rng, 40, 24))
    for msn, cut in enumerate(cuts, 1):
        for number, octets in enumerate(cut):
            bench.send(1, send(msn, sum(cut[:number]), octets, number == len(cut) - 1))
    log = await bench.settle()
    delivered = [event[1] for event in log if event[0] == "deliver"]
    assert [each["index"] for each in delivered] == list(range(len(cuts)))
    assert [each["length"] for each in delivered] == [sum(cut) for cut in cuts]
    assert [event for event in log if event[0] == "pop_entry"] == [("pop_entry", 1)] * len(cuts)
    # Each after all that is placed before it.
    placed = 0
    for name, what in (event for event in log if event[0] in ("place", "deliver")):
        placed += name == "place"
        assert name == "place" or what["after"] == placed


@shows("DDP-5.2-11", "RDMAP-5.5-07", "RDMAP-5.5-19")
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


@shows(
    "RDMAP-3.1-05",
    "RDMAP-3.2-02",
    "RDMAP-5.3-11",
    "RDMAP-5.3-13",
    "DDP-4.3-03",
    "DDP-5.4-02",
    "DDP-5.4-03",
    "SEC-A-01",
    "RDMAP-4-01",
)
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
            wanted = [("invalidate", stag)] if kind in INVALIDATE_OPCODES else []
            assert invalidations == wanted
            # Before the program learns of it.
            log = await bench.settle()
            *before, (_, told) = [each for each in log if each[0] in ("invalidate", "deliver")]
            assert before == wanted
            flags = CompletionFlags.SOLICITED if kind in SOLICITED_OPCODES else CompletionFlags(0)
            flags |= CompletionFlags.INVALIDATED if wanted else CompletionFlags(0)
            assert (told["length"], told["flags"]) == (mo, int(flags))
            assert told["detail"] == (stag if wanted else 0)
    assert msn == 25


@shows("EXT-6-01", "EXT-6.3-02")
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
        ulpdu = immediate(rng, msn)
        bench.send(1, ulpdu)
        bench.send(1, write(rng, rng.choice([0, 8])))
        assert not bench.model.qps[1].stopped
        delivered = [event[1] for event in bench.model.events if event[0] == "deliver"]
        assert delivered[-1]["length"] == 8
        assert delivered[-1]["detail"].to_bytes(8, "little") == ulpdu[-8:]
        assert delivered[-1]["flags"] & CompletionFlags.IMMEDIATE
        if rng.random() < 0.5:
            await bench.settle()
    await bench.settle()


@shows("RDMAP-5.4-03", "RDMAP-5.4-04", "RDMAP-5.4-05")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_terminate_is_told_with_what_it_says(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    tagged, untagged = write(rng, 0), send(0x1234_5678, 6, 0)
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
            if ddp_header is untagged:
                assert told["index"] == 0x5678  # of its MSN
            await bench.settle()


@shows("RDMAP-5.2.1-02", "RDMAP-5.2.2-02", "RDMAP-6.1-06")
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


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_random_traffic_of_many_qps(dut: Any) -> None:
    await random_traffic(await start(dut), 60)


# The first test of each pattern waits for the compilation of the receiver and for the simulation.
pytestmark = pytest.mark.timeout(1200)


@each_check(globals())
def test_receiver(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
