"""The transmitter sends what the model of RFC 5041 and RFC 5040 says, within all limits.

What random messages come to is in `test_octets.py`.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import QpCommandKind
from stagecoach.gateware.rdmap.atomic.operations import AtomicStatus
from stagecoach.gateware.rdmap.transmit.transmitter import Transmitter
from stagecoach.hw.interface.causes import CODES, Cause, HeaderCopy, header_copy
from stagecoach.hw.interface.queue_entries import (
    IMMEDIATE_OPERATIONS,
    STAG_OPERATIONS,
    Rights,
    SendFlags,
    SendOpcode,
)
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.atomics import AtomicOperation
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.terminate import terminate_for
from tests.rdmap.transmit.bench import LOCAL, Bench, Element, Entry, Region
from tests.rdmap.transmit.transcript import Recorder
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import each_check, shows, simulate

CONFIG = RnicConfig(qps=4, pending_sends=4, read_queue_depth=4)
LARGE_WINDOW = 2**30
TABLE_LATENCY = 5
"""Cycles that stag/table.py takes."""


@pytest.mark.requirement("DDP-3-03", "DDP-3-02")
def test_emss_changes_behind_posted_segments():
    run_cocotb(
        Transmitter(CONFIG), __name__, test_filter="check_posted", parameters={"PATTERN": "always"}
    )


async def _bench(dut, *salt, latency=None):
    rng = seeded_random(parameter("PATTERN"), *salt)
    bench = Bench(dut, CONFIG, rng, parameter("PATTERN"), latency)
    await start_clock_and_reset(dut)
    bench.start()
    return bench, rng


def _write(bench, number, length, *, flags=0, stag=None):
    qp = bench.qps[number]
    if stag is None:
        stag, base = bench.add_region(qp.pd, LOCAL, max(length, 1))
    else:
        base = bench.regions[stag].base
    return Entry(
        SendOpcode.RDMA_WRITE,
        [Element(base, length, stag)] if length else [],
        remote_stag=bench.rng.getrandbits(32),
        remote_tagged_offset=bench.rng.getrandbits(64),
        flags=flags,
    )


def _element(bench, length, pd=1):
    stag, base = bench.add_region(pd, LOCAL, length)
    return Element(base, length, stag)


def _inbound(bench, number, length, rights=Rights.REMOTE_READ):
    stag, base = bench.add_region(bench.qps[number].pd, rights, max(length, 1))
    bench.push_inbound(
        number,
        sink_stag=bench.rng.getrandbits(32),
        sink_tagged_offset=bench.rng.getrandbits(64),
        length=length,
        source_stag=stag,
        source_tagged_offset=base,
    )
    return stag


MESSAGES = [
    opcode
    for opcode in SendOpcode
    if opcode not in (*STAG_OPERATIONS, *IMMEDIATE_OPERATIONS, SendOpcode.ATOMIC)
]


def _stag_operation(rng, opcode, **fields):
    """A work request that registers or invalidates any STag."""
    region = [Element(rng.getrandbits(64), rng.getrandbits(32), rng.randrange(16))]
    entry = {
        "elements": region if opcode == SendOpcode.FAST_REGISTER else [],
        "remote_stag": rng.getrandbits(32),
        "remote_tagged_offset": rng.getrandbits(64),
        "flags": rng.getrandbits(2),
    }
    return Entry(opcode, **(entry | fields))


def _immediate(rng, **fields):
    """Immediate Data of any octets; fields that it does not have are noise."""
    entry = {
        "immediate_data": rng.randbytes(8),
        "remote_stag": rng.getrandbits(32),
        "remote_tagged_offset": rng.getrandbits(64),
        "flags": rng.getrandbits(2),
    }
    return Entry(rng.choice(IMMEDIATE_OPERATIONS), [], **(entry | fields))


def _atomic(bench, number, **fields):
    """A work request for an atomic; its random operands are not all sent."""
    rng = bench.rng
    stag, base = bench.add_region(bench.qps[number].pd, Rights.LOCAL_WRITE, 100)
    entry = {
        "elements": [Element((base + rng.randrange(93)) % 2**64, 8, stag)],
        "remote_stag": rng.getrandbits(32),
        "remote_tagged_offset": rng.getrandbits(64),
        "operation": rng.randrange(3),
        "operands": tuple(rng.getrandbits(64) for _ in range(4)),
    }
    return Entry(SendOpcode.ATOMIC, **(entry | fields))


ATOMIC_RIGHTS = Rights.REMOTE_READ | Rights.REMOTE_WRITE


def _inbound_atomic(bench, number, rights=ATOMIC_RIGHTS, aligned=True, operation=None):
    """An Atomic Request whose target has a host address that is a multiple of 8, or is not."""
    rng = bench.rng
    stag, base = bench.add_region(bench.qps[number].pd, rights, 40)
    offset = -bench.regions[stag].address % 8
    bench.push_atomic(
        number,
        stag=stag,
        tagged_offset=(base + offset + (0 if aligned else rng.randrange(1, 8))) % 2**64,
        identifier=rng.getrandbits(32),
        operands={
            "operation": rng.randrange(3) if operation is None else operation,
            "data": rng.getrandbits(64),
            "mask": rng.getrandbits(64),
            "compare": rng.getrandbits(64),
            "compare_mask": rng.getrandbits(64),
        },
    )
    return stag


def _random_entry(bench, number):
    rng = bench.rng
    pd = bench.qps[number].pd
    length = rng.choice(
        [0, 1, rng.randrange(64), rng.randrange(3000), rng.randrange(8000), rng.randrange(20000)]
    )
    if rng.random() < 0.01:
        length = rng.randrange(200001)
    opcode = rng.choice(list(SendOpcode))
    if opcode in IMMEDIATE_OPERATIONS:
        return _immediate(rng)
    if opcode in STAG_OPERATIONS:
        return _stag_operation(rng, opcode)
    if opcode == SendOpcode.ATOMIC:
        return _atomic(bench, number, flags=rng.getrandbits(2))
    count = rng.randint(0 if length == 0 else 1, 1 if opcode == SendOpcode.RDMA_READ else 4)
    cuts = sorted(rng.randint(0, length) for _ in range(max(count - 1, 0)))
    elements = []
    for first, end in zip([0, *cuts], [*cuts, length], strict=True):
        if len(elements) == count:
            break
        room = rng.randrange(100)
        stag, base = bench.add_region(
            pd,
            Rights.LOCAL_WRITE if opcode == SendOpcode.RDMA_READ else Rights.LOCAL_READ,
            end - first + room + 1,
        )
        elements.append(Element((base + rng.randint(0, room)) % 2**64, end - first, stag))
    return Entry(
        opcode,
        elements,
        remote_stag=rng.getrandbits(32),
        remote_tagged_offset=rng.choice([rng.getrandbits(64), 2**64 - 100]),
        flags=rng.getrandbits(1) | (SendFlags.FENCE if rng.random() < 0.15 else 0),
    )


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_random_messages_are_segmented(dut):
    """Its transcript is what `test_octets.py` looks at."""
    bench, rng = await _bench(dut)
    bench.record = Recorder(Path(parameter("TRANSCRIPT")))
    numbers = range(CONFIG.qps)
    for number in numbers:
        await bench.connect(
            number,
            pd=rng.getrandbits(16),
            ord=1 + number % 4,
            emss=rng.choice([140, 536, 1460, 8960, 65535]),
            crc=rng.getrandbits(1),
            # Some with and some without.
            markers=number % 2 if number < 2 else rng.getrandbits(1),
        )
    todo = dict.fromkeys(numbers, 40)
    to_answer = dict.fromkeys(numbers, 15)

    def unfinished():
        return (
            any(todo.values())
            or any(to_answer.values())
            or not bench.idle()
            or any(qp.entries or qp.inbound or qp.outstanding for qp in bench.qps)
        )

    while unfinished():
        await ClockCycles(dut.clk, rng.randrange(1, 60))
        for number in numbers:
            qp = bench.qps[number]
            if todo[number] and len(qp.entries) < 6 and rng.random() < 0.5:
                todo[number] -= 1
                bench.post(number, _random_entry(bench, number))
            if to_answer[number] and len(qp.inbound) < 4 and rng.random() < 0.2:
                to_answer[number] -= 1
                if rng.random() < 0.5:
                    _inbound_atomic(bench, number)
                else:
                    _inbound(bench, number, rng.choice([0, 1, rng.randrange(6000)]))
            if qp.outstanding and rng.random() < 0.3:
                bench.pop_outstanding(number)
            if bench.events.pending < 3 and rng.random() < 0.6:
                ahead = rng.choice([200, 2000, 70000])
                if qp.position + ahead > qp.window:
                    bench.grant(number, qp.position + ahead)
            if bench.events.pending < 3 and rng.random() < 0.03:
                bench.set_emss(number, rng.choice([140, 200, 536, 1001, 1460, 1462, 9000]))
    await bench.settle()
    assert not len(bench.error_sink)
    assert bench.sends_done == 40 * CONFIG.qps
    assert bench.atomics > CONFIG.qps and not bench.busy_atomics


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_posted_segments_stay_as_they_are_when_the_mulpdu_changes(dut):
    """RFC 5041, 3: what was handed down is not segmented again, whatever the new MULPDU is."""
    octets, header = 40_000, 14
    bench, rng = await _bench(dut)
    for number, (old, new) in enumerate(((8960, 536), (536, 8960), (1460, 1456))):
        await bench.connect(number, pd=7, ord=1, emss=old)
        bench.grant(number, LARGE_WINDOW)
        lengths = []
        bench.record = lambda event, lengths=lengths, **fields: (
            lengths.append(fields["ulpdu_length"]) if event == "job" else None
        )
        bench.job_sink.paused = True
        bench.post(
            number,
            Entry(
                SendOpcode.RDMA_WRITE,
                [_element(bench, octets, 7)],
                remote_stag=rng.getrandbits(32),
                remote_tagged_offset=rng.getrandbits(64),
            ),
        )
        while not dut.job__valid.value:
            await RisingEdge(dut.clk)
        posted = int(dut.job__payload.value)
        bench.set_emss(number, new)
        # Long enough for anything that would be done anew.
        await ClockCycles(dut.clk, 600)
        assert int(dut.job__payload.value) == posted
        bench.job_sink.paused = False
        # The scoreboard sees that no octet is lost or comes twice between old and new.
        await bench.settle()
        before, behind = (emss - 6 - emss % 4 for emss in (old, new))
        count = next(i for i, length in enumerate(lengths) if length != before)
        assert 1 <= count <= 4, "segments of before the change"
        assert set(lengths[count:-1]) <= {behind}
        assert sum(lengths) - header * len(lengths) == octets


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_long_messages_of_many_elements(dut):
    bench, rng = await _bench(dut)
    qp = await bench.connect(1, pd=7, ord=1, emss=1460, markers=1)
    bench.grant(1, LARGE_WINDOW)
    for opcode in (SendOpcode.SEND, SendOpcode.RDMA_WRITE):
        elements = []
        for length in (59_000, 1, 0, 999):
            stag, base = bench.add_region(7, LOCAL, length + 1)
            elements.append(Element(base, length, stag))
        bench.post(1, Entry(opcode, elements, remote_stag=rng.getrandbits(32)))
        await bench.settle()
    assert bench.sends_done == 2 and not qp.entries


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_nothing_is_sent_before_and_past_the_window(dut):
    bench, _ = await _bench(dut)
    qp = await bench.connect(0, pd=1, ord=1, emss=1460)
    bench.post(0, _write(bench, 0, 100))
    await bench.settle()
    assert bench.jobs == 0
    length = 2 + 14 + 100 + 4
    bench.grant(0, length - 4)
    await bench.settle()
    assert bench.jobs == 0
    bench.grant(0, length)
    await bench.settle()
    assert bench.jobs == 1 and qp.position == length


@shows("MPA-7.1.2-14")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_not_running_or_not_allowed_sends_nothing(dut):
    bench, _ = await _bench(dut)
    qp = await bench.connect(2, pd=1, ord=1, emss=1460)
    bench.grant(2, LARGE_WINDOW)
    for running, may_send in ((False, True), (True, False), (True, True)):
        qp.running, qp.may_send = running, may_send
        bench.drive_states()
        if not qp.entries:
            bench.post(2, _write(bench, 2, 10))
        bench.kick(2)
        await bench.settle()
        assert bench.jobs == int(running and may_send)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_sends_in_flight_are_limited(dut):
    bench, _ = await _bench(dut)
    await bench.connect(0, pd=1, ord=1, emss=1460)
    bench.grant(0, LARGE_WINDOW)
    bench.auto_retire = False
    for _ in range(7):
        bench.post(0, _write(bench, 0, 8))
    await bench.settle()
    assert bench.jobs == CONFIG.pending_sends
    # Two at once: the counter takes strobes in cycles that follow each other.
    bench._retire += [(0, 0), (0, 0)]
    await bench.settle()
    assert bench.jobs == CONFIG.pending_sends + 2
    # A new connection starts at zero in flight, whatever is left of the old one.
    qp = await bench.connect(0, pd=1, ord=1, emss=1460)
    bench.grant(0, LARGE_WINDOW)
    for _ in range(7):
        bench.post(0, _write(bench, 0, 8))
    await bench.settle()
    assert qp.in_flight == CONFIG.pending_sends


@shows("RDMAP-6.1-05")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_outstanding_reads_are_limited_and_block_no_response(dut):
    bench, _ = await _bench(dut)
    qp = await bench.connect(3, pd=1, ord=2, emss=1460)
    bench.grant(3, LARGE_WINDOW)
    for _ in range(4):
        stag, base = bench.add_region(1, Rights.LOCAL_WRITE, 10)
        bench.post(3, Entry(SendOpcode.RDMA_READ, [Element(base, 10, stag)]))
    await bench.settle()
    assert bench.jobs == 2 and len(qp.outstanding) == 2
    _inbound(bench, 3, 5000)
    await bench.settle()
    assert not qp.inbound and bench.jobs == 2 + 4
    bench.pop_outstanding(3)
    await bench.settle()
    assert bench.jobs == 7


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_responses_and_sends_alternate(dut):
    bench, _ = await _bench(dut)
    qp = await bench.connect(0, pd=1, ord=1, emss=1460)
    for _ in range(4):
        bench.post(0, _write(bench, 0, 3000))
        _inbound(bench, 0, 3000)
    bench.grant(0, LARGE_WINDOW)
    await bench.settle()
    assert bench.jobs == 24
    assert qp.started in (["send", "response"] * 4, ["response", "send"] * 4)


@shows("RDMAP-5.2.1-14", "RDMAP-5.2.1-15", "DDP-5.2-08")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_empty_messages_need_no_stag(dut):
    bench, rng = await _bench(dut)
    qp = await bench.connect(0, pd=1, ord=4, emss=1460)
    bench.grant(0, LARGE_WINDOW)
    for opcode in MESSAGES:
        for elements in ([], [Element(5, 0, rng.getrandbits(32))]):
            bench.post(0, Entry(opcode, elements, remote_stag=rng.getrandbits(32)))
    stag = _inbound(bench, 0, 0)
    del bench.regions[stag]
    await bench.settle()
    assert bench.jobs == 2 * len(MESSAGES) + 1 and not qp.inbound
    assert bench.stag_request is None and not len(bench.error_sink)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_immediate_data_needs_the_window_and_no_stag(dut):
    bench, rng = await _bench(dut)
    qp = await bench.connect(0, pd=1, ord=1, emss=1460)
    fpdu = 2 + 18 + 8 + 4
    bench.grant(0, fpdu - 4)
    for _ in range(3):
        bench.post(0, _immediate(rng, flags=1))
    await bench.settle()
    assert bench.jobs == 0
    bench.grant(0, 2 * fpdu)
    await bench.settle()
    assert bench.jobs == 2 and qp.position == 2 * fpdu
    bench.grant(0, LARGE_WINDOW)
    await bench.settle()
    assert bench.jobs == 3 and qp.send_msn == 4
    assert bench.stag_request is None and not len(bench.error_sink)


LOCAL_ERRORS = {
    "unknown opcode": (Cause.LOCAL_BAD_ENTRY, lambda e: setattr(e, "opcode", 2)),
    "opcode past 4 bits": (Cause.LOCAL_BAD_ENTRY, lambda e: setattr(e, "opcode", 0x10)),
    "five elements": (Cause.LOCAL_BAD_ENTRY, lambda e: setattr(e, "count", 5)),
    "no element": (Cause.LOCAL_BAD_ENTRY, lambda e: setattr(e, "count", 0)),
    "sum too short": (Cause.LOCAL_BAD_ENTRY, lambda e: setattr(e, "length", 101)),
    "sum too long": (Cause.LOCAL_BAD_ENTRY, lambda e: setattr(e, "length", 99)),
    "length 0": (Cause.LOCAL_BAD_ENTRY, lambda e: setattr(e, "length", 0)),
    "sum past 2^32": (
        Cause.LOCAL_BAD_ENTRY,
        lambda e: e.__dict__.update(
            elements=[Element(0, 2**31 + 50, 1), Element(0, 2**31 + 50, 1)], count=2
        ),
    ),
    "bad second element": (
        Cause.LOCAL_SEND_PROTECTION,
        lambda e: e.__dict__.update(
            elements=[e.elements[0], Element(0, 1, 1)], count=2, length=101
        ),
    ),
    "unknown stag": (
        Cause.LOCAL_SEND_PROTECTION,
        lambda e: e.__dict__.update(elements=[Element(0, 100, 1)]),
    ),
    "read into two elements": (
        Cause.LOCAL_BAD_ENTRY,
        lambda e: e.__dict__.update(
            opcode=SendOpcode.RDMA_READ, elements=e.elements * 2, count=2, length=200
        ),
    ),
    "read of another length": (
        Cause.LOCAL_BAD_ENTRY,
        lambda e: e.__dict__.update(opcode=SendOpcode.RDMA_READ, length=50),
    ),
    "atomic without a buffer": (
        Cause.LOCAL_BAD_ENTRY,
        lambda e: e.__dict__.update(
            opcode=SendOpcode.ATOMIC, operation=0, elements=[], count=0, length=0
        ),
    ),
    "atomic with a longer buffer": (
        Cause.LOCAL_BAD_ENTRY,
        lambda e: e.__dict__.update(opcode=SendOpcode.ATOMIC, operation=0),
    ),
    "atomic into two elements": (
        Cause.LOCAL_BAD_ENTRY,
        lambda e: e.__dict__.update(
            opcode=SendOpcode.ATOMIC,
            operation=0,
            elements=[Element(e.elements[0].tagged_offset, 4, e.elements[0].stag)] * 2,
            count=2,
            length=8,
        ),
    ),
    **{
        f"AOpCode {operation}": (
            Cause.LOCAL_BAD_ENTRY,
            lambda e, operation=operation: e.__dict__.update(
                opcode=SendOpcode.ATOMIC,
                operation=operation,
                elements=[Element(e.elements[0].tagged_offset, 8, e.elements[0].stag)],
                length=8,
            ),
        )
        for operation in (3, 15, 16, 255)
    },
    "atomic into an unknown stag": (
        Cause.LOCAL_SEND_PROTECTION,
        lambda e: e.__dict__.update(
            opcode=SendOpcode.ATOMIC, operation=2, elements=[Element(0, 8, 1)], length=8
        ),
    ),
    "read into an unknown stag": (
        Cause.LOCAL_SEND_PROTECTION,
        lambda e: e.__dict__.update(opcode=SendOpcode.RDMA_READ, elements=[Element(0, 100, 1)]),
    ),
}


IMMEDIATE_ERRORS = {
    "shorter": {"length": 7},
    "longer": {"length": 9},
    "no length": {"length": 0},
    "eight octets mod 2^8": {"length": 8 + 256},
    "an element": {"count": 1, "elements": [Element(0, 8, 1)]},
    "an element without octets": {"count": 1},
    "two elements": {"count": 2},
    "five elements": {"count": 5},
}
LOCAL_ERRORS |= {
    f"Immediate Data, {name}": (
        Cause.LOCAL_BAD_ENTRY,
        lambda e, fields=fields: e.__dict__.update(
            {"opcode": SendOpcode.IMMEDIATE, "elements": [], "count": 0, "length": 8} | fields
        ),
    )
    for name, fields in IMMEDIATE_ERRORS.items()
}


@shows("RDMAP-7.1-02")
@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_local_errors_stop_the_qp(dut):
    bench, _ = await _bench(dut)
    bench.regions.pop(1, None)
    for name, (cause, spoil) in LOCAL_ERRORS.items():
        await bench.connect(0, pd=1, ord=2, emss=1460)
        bench.grant(0, LARGE_WINDOW)
        good, bad, never = (_write(bench, 0, 100) for _ in range(3))
        spoil(bad)
        for entry in (good, bad, never):
            bench.post(0, entry)
        before = bench.jobs
        await bench.settle()
        bench.kick(0)
        await bench.settle()
        assert bench.jobs == before + 1, name
        (error,) = bench.error_sink.take_all()
        assert error == {
            "qp": 0, "cause": cause, "index": 1, "ulpdu_length": 0, "header": 0,
        }, name  # fmt: skip


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_an_entry_waits_for_its_second_unit(dut):
    bench, _ = await _bench(dut)
    qp = await bench.connect(0, pd=1, ord=1, emss=1460)
    bench.grant(0, LARGE_WINDOW)
    elements = [_element(bench, 10) for _ in range(3)]
    for posted in range(1, 4):
        qp.missing = 1
        bench.post(0, Entry(SendOpcode.SEND, elements, flags=1))
        await bench.settle()
        assert bench.jobs == posted - 1 and len(bench.expected_pieces) == 0
        qp.missing = 0
        bench.kick(0)
        await bench.settle()
        assert bench.jobs == posted and not qp.entries
    assert not len(bench.error_sink)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_an_entry_of_which_half_was_posted_stops_the_qp(dut):
    bench, _ = await _bench(dut)
    for opcode in (SendOpcode.SEND, SendOpcode.ATOMIC):
        qp = await bench.connect(0, pd=1, ord=1, emss=1460)
        bench.grant(0, LARGE_WINDOW)
        elements = [_element(bench, 8)] * (3 if opcode == SendOpcode.SEND else 1)
        before = bench.jobs
        bench.post(0, _write(bench, 0, 100))
        qp.missing, qp.cut = 1, True
        bench.post(0, Entry(opcode, elements, operation=0))
        await bench.settle()
        assert bench.jobs == before + 1
        (error,) = bench.error_sink.take_all()
        assert (error["cause"], error["index"]) == (Cause.LOCAL_BAD_ENTRY, 1)


STAG_ERRORS = {
    "no such right": (SendOpcode.FAST_REGISTER, {"elements": [Element(1, 2, 16)]}),
    "rights past 4 bits": (SendOpcode.FAST_REGISTER, {"elements": [Element(1, 2, 1 << 31)]}),
    "nothing to register": (SendOpcode.FAST_REGISTER, {"elements": []}),
    "two regions": (SendOpcode.FAST_REGISTER, {"elements": [Element(1, 2, 3)] * 2}),
    "another length": (SendOpcode.FAST_REGISTER, {"elements": [Element(1, 2, 3)], "length": 3}),
    "an element": (SendOpcode.LOCAL_INVALIDATE, {"elements": [Element(1, 2, 3)]}),
    "a length": (SendOpcode.LOCAL_INVALIDATE, {"length": 1}),
}


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_stag_operations_that_are_wrong_or_refused_stop_the_qp(dut):
    bench, rng = await _bench(dut)
    cases = [(name, Cause.LOCAL_BAD_ENTRY, *case) for name, case in STAG_ERRORS.items()]
    cases += [(o.name, Cause.LOCAL_STAG_OPERATION, o, {}) for o in STAG_OPERATIONS]
    for name, cause, opcode, fields in cases:
        await bench.connect(0, pd=1, ord=2, emss=1460)
        bench.grant(0, LARGE_WINDOW)
        bench.refuse = cause == Cause.LOCAL_STAG_OPERATION
        bench.post(0, _write(bench, 0, 100))
        bench.post(0, _stag_operation(rng, opcode, **fields))
        bench.post(0, _write(bench, 0, 100))
        before = bench.jobs
        await bench.settle()
        bench.kick(0)
        await bench.settle()
        assert bench.jobs == before + 1, name
        assert not bench.changes, name
        (error,) = bench.error_sink.take_all()
        assert error == {
            "qp": 0, "cause": cause, "index": 1, "ulpdu_length": 0, "header": 0,
        }, name  # fmt: skip


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_stag_operations_need_no_window_and_send_nothing(dut):
    bench, rng = await _bench(dut)
    qp = await bench.connect(0, pd=1, ord=2, emss=1460)
    for opcode in (*STAG_OPERATIONS, *STAG_OPERATIONS):
        bench.post(0, _stag_operation(rng, opcode, flags=0))
    bench.post(0, _write(bench, 0, 100))
    await bench.settle()
    assert bench.jobs == 4 and qp.position == 0
    bench.grant(0, LARGE_WINDOW)
    await bench.settle()
    assert bench.jobs == 5


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_local_rights_are_needed(dut):
    bench, _ = await _bench(dut)
    for opcode, rights in (
        (SendOpcode.SEND, 15 - Rights.LOCAL_READ),
        (SendOpcode.RDMA_WRITE, 15 - Rights.LOCAL_READ),
        (SendOpcode.RDMA_READ, 15 - Rights.LOCAL_WRITE),
    ):
        await bench.connect(0, pd=1, ord=2, emss=1460)
        bench.grant(0, LARGE_WINDOW)
        stag, base = bench.add_region(1, rights, 100)
        bench.post(0, Entry(opcode, [Element(base, 100, stag)]))
        await bench.settle()
        (error,) = bench.error_sink.take_all()
        assert error["cause"] == Cause.LOCAL_SEND_PROTECTION
    assert bench.jobs == 0


@shows("RDMAP-4.8-15", "RDMAP-5.2.1-13")
@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_response_is_checked_at_each_segment(dut):
    bench, _ = await _bench(dut)
    cases = {
        Cause.READ_STAG_INVALID: {},
        Cause.READ_STAG_NOT_ASSOCIATED: {"pd": 2},
        Cause.READ_NOT_PERMITTED: {"rights": 15 - Rights.REMOTE_READ},
        Cause.READ_BOUNDS: {"length": 2000},
    }
    for msn, (cause, changes) in enumerate(cases.items(), start=1):
        qp = await bench.connect(0, pd=1, ord=2, emss=1460)
        bench.grant(0, 1600)
        before = bench.jobs
        for _ in range(msn - 1):
            _inbound(bench, 0, 0)
        stag = _inbound(bench, 0, 4000)
        await bench.settle()
        assert bench.jobs == before + msn and qp.inbound
        read, remaining = qp.inbound[0]["of"], 4000 - qp.done
        region = bench.regions.pop(stag)
        if changes:
            bench.regions[stag] = type(region)(**{**region.__dict__, **changes})
        bench.grant(0, LARGE_WINDOW)
        await bench.settle()
        (error,) = bench.error_sink.take_all()
        assert error["cause"] == cause and error["ulpdu_length"] == 46
        # The Read Request as if it asked for the rest (RFC 5040, 4.8).
        request = ddp.UntaggedHeader(1, msn, rsvd_ulp=0x41).encode()
        sent = 4000 - remaining
        request += rdmap.ReadRequest(
            read["sink_stag"],
            (read["sink_tagged_offset"] + sent) % 2**64,
            remaining,
            read["source_stag"],
            (read["source_tagged_offset"] + sent) % 2**64,
        ).encode()
        assert error["header"] == int.from_bytes(request, "little")


async def _refused_atomic(bench, cause, **changes):
    """Sends nothing and changes nothing for the atomic of a QP whose region has changed."""
    for msn in range(1, 4):
        for operation in AtomicOperation:
            await bench.connect(0, pd=1, ord=2, emss=1460)
            bench.grant(0, LARGE_WINDOW)
            for _ in range(msn - 1):
                _inbound(bench, 0, 0)
                await bench.settle()
            aligned = cause is not Cause.ATOMIC_MISALIGNED
            stag = _inbound_atomic(bench, 0, aligned=aligned, operation=operation)
            region = bench.regions.pop(stag)
            if cause is not Cause.ATOMIC_STAG_INVALID:
                bench.regions[stag] = type(region)(**{**region.__dict__, **changes})
            await bench.settle()
            (error,) = bench.error_sink.take_all()
            assert (error["cause"], error["ulpdu_length"]) == (cause, 70)
            expected = ddp.UntaggedHeader(1, msn, rsvd_ulp=0x4A).encode()
            assert error["header"].to_bytes(46, "little")[:18] == expected
            assert not bench.busy_atomics and not bench.atomics


@shows("EXT-5.2.1-12", "EXT-8.2-05")
@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(
    (
        ("cause", "changes"),
        [
            (Cause.ATOMIC_STAG_INVALID, {}),
            (Cause.ATOMIC_STAG_NOT_ASSOCIATED, {"pd": 2}),
            (Cause.ATOMIC_NOT_PERMITTED, {"rights": 15 - Rights.REMOTE_READ}),
            (Cause.ATOMIC_NOT_PERMITTED, {"rights": 15 - Rights.REMOTE_WRITE}),
            (Cause.ATOMIC_BOUNDS, {"length": 7}),
        ],
    )
)
async def check_an_atomic_whose_target_is_refused_changes_nothing(dut, cause, changes):
    bench, _ = await _bench(dut)
    await _refused_atomic(bench, cause, **changes)


@shows("EXT-5.1.1-03", "EXT-5.1.3-02", "EXT-8.2-04", "EXT7306-5.1.1-01", "EXT7306-5.1.2-02")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_atomic_whose_target_is_misaligned_changes_nothing(dut):
    bench, _ = await _bench(dut)
    await _refused_atomic(bench, Cause.ATOMIC_MISALIGNED)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_failed_atomic_stops_its_qp_only(dut):
    bench, _ = await _bench(dut)
    causes = {
        AtomicStatus.READ_ERROR: Cause.HOST_READ_ERROR,
        AtomicStatus.WRITE_ERROR: Cause.HOST_WRITE_ERROR,
    }
    for status, cause in causes.items():
        for number in (0, 1):
            await bench.connect(number, pd=1, ord=2, emss=1460)
            bench.grant(number, LARGE_WINDOW)
        bench.atomic_status = status
        jobs = bench.jobs
        _inbound_atomic(bench, 0)
        await bench.settle()
        bench.atomic_status = AtomicStatus.DONE
        (error,) = bench.error_sink.take_all()
        assert (error["qp"], error["cause"]) == (0, cause)
        assert bench.jobs == jobs, "an answer of an atomic that failed"
        # What was found before is not found again.
        bench.qps[1].atomic = None
        _inbound_atomic(bench, 1)
        await bench.settle()
        assert bench.jobs == jobs + 1 and not bench.qps[1].inbound


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_sends_go_on_while_an_atomic_is_under_way(dut):
    bench, _ = await _bench(dut)
    qp = await bench.connect(0, pd=1, ord=1, emss=1460)
    bench.grant(0, LARGE_WINDOW)
    bench.hold_atomics = True
    for _ in range(2):
        _inbound_atomic(bench, 0)
        _inbound(bench, 0, 100)
    for _ in range(5):
        bench.post(0, _write(bench, 0, 100))
    await ClockCycles(dut.clk, 600)
    assert bench.atomics == 1 and not qp.entries and len(qp.inbound) == 4
    bench.hold_atomics = False
    await bench.settle()
    assert qp.started == ["send"] * 5 + ["response"] * 4


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_atomic_waits_until_the_reads_before_it_have_left(dut):
    bench, _ = await _bench(dut)
    for number in (0, 1):
        await bench.connect(number, pd=1, ord=1, emss=1460)
        bench.grant(number, LARGE_WINDOW)
    bench.hold_jobs = True
    _inbound(bench, 0, 100)
    for number in (0, 1):
        _inbound_atomic(bench, number)
    _inbound(bench, 0, 100)
    bench.post(0, _write(bench, 0, 100))
    await ClockCycles(dut.clk, 600)
    # The other QP has no Read before its own; Writes do not wait.
    assert bench.atomics == 1 and len(bench.qps[0].inbound) == 2 and not bench.qps[0].entries
    assert not bench.qps[1].inbound
    bench.hold_jobs = False
    await bench.settle()
    assert bench.atomics == 2 and not bench.qps[0].inbound


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_swap_is_an_error_where_rfc_7306_is_all_there_is(dut):
    bench, _ = await _bench(dut)
    for operation in range(3):
        for strict in (0, 1):
            dut.strict.value = strict
            await bench.connect(0, pd=1, ord=1, emss=1460)
            bench.grant(0, LARGE_WINDOW)
            jobs = bench.jobs
            bench.post(0, _atomic(bench, 0, operation=operation))
            await bench.settle()
            refused = bool(strict) and operation == 1
            assert bench.jobs == jobs + (not refused)
            causes = [error["cause"] for error in bench.error_sink.take_all()]
            assert causes == [Cause.LOCAL_BAD_ENTRY] * refused


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_stop_and_destroy_stop(dut):
    bench, _ = await _bench(dut)
    for kind in (QpCommandKind.STOP, QpCommandKind.DESTROY):
        await bench.connect(0, pd=1, ord=2, emss=1460)
        bench.grant(0, LARGE_WINDOW)
        await bench.command(kind, 0)
        bench.post(0, _write(bench, 0, 10))
        await bench.settle()
        assert bench.jobs == 0


async def _cycles_per_job(dut, bench, number, jobs):
    """Cycles from job to job of a QP that has work for `jobs` of them, at its steady pace."""
    bench.job_cycles.clear()
    await bench.settle()
    assert len(bench.job_cycles) == jobs
    return [b - a for a, b in itertools.pairwise(bench.job_cycles)]


SCHEDULER_LATENCY = 5
"""Cycles from kick to pick in queues/scheduler.py."""

FPDU_CYCLES = 11
"""That the transmitter takes for an FPDU of one element or none."""


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_fpdus_of_one_qp_follow_each_other(dut):
    bench, _ = await _bench(dut, latency=TABLE_LATENCY)
    bench.kick_cycles = SCHEDULER_LATENCY - 2  # the bench's own
    bench.auto_retire = False
    qp = await bench.connect(0, pd=1, ord=4, emss=1460)
    bench.grant(0, LARGE_WINDOW)
    stag, base = bench.add_region(1, LOCAL, 8)
    kinds = {
        "write of 1440": lambda: bench.post(0, _write(bench, 0, 1440)),
        "write of 0": lambda: bench.post(0, _write(bench, 0, 0)),
        "send of 8": lambda: bench.post(0, Entry(SendOpcode.SEND, [Element(base, 8, stag)])),
        "read of 8 answered": lambda: _inbound(bench, 0, 8),
        "read of 8": lambda: bench.post(0, Entry(SendOpcode.RDMA_READ, [Element(base, 8, stag)])),
    }
    for name, post in kinds.items():
        for _ in range(4):
            post()
        gaps = await _cycles_per_job(dut, bench, 0, 4)
        bench._retire += [(0, 0)] * bench.qps[0].in_flight
        print(f"{name}: {gaps} cycles")
        assert max(gaps) <= FPDU_CYCLES + (name == "read of 8"), name
    bench.visit_cycles.clear()
    bench.post(0, _write(bench, 0, 10 * 1400))
    # Nobody but the visit before asks for one, the scheduler's way is a cycle longer than a visit.
    gaps = await _cycles_per_job(dut, bench, 0, 10)
    assert max(gaps) <= FPDU_CYCLES + 1
    assert not qp.entries and max(bench.visit_cycles) <= 18


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_nothing_of_a_qp_leaves_behind_an_error(dut):
    """The visits after the one that fails are under way already; other QPs go on."""
    bench, _ = await _bench(dut)
    for latency in (1, TABLE_LATENCY, 20):
        bench.stag_latency = latency
        for bad in range(4):
            for number in (0, 1):
                await bench.connect(number, pd=1, ord=2, emss=1460, markers=number)
                bench.grant(number, LARGE_WINDOW)
            before = bench.jobs
            bench.regions[1] = Region(2, 15, 0, 100, 0)
            for position in range(4):
                stag = 1 if position == bad else None
                bench.post(0, _write(bench, 0, 100, stag=stag))
                bench.post(1, _write(bench, 1, 100))
            await bench.settle()
            assert bench.jobs == before + bad + 4
            (error,) = bench.error_sink.take_all()
            assert (error["qp"], error["index"]) == (0, bad)
            assert not bench.qps[1].entries


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_a_terminate_stands_where_the_bad_fpdu_would_have_stood(dut):
    bench, _ = await _bench(dut)
    request = ddp.UntaggedHeader(1, 1, rsvd_ulp=0x41).encode() + bytes(28)
    for good in range(4):
        qp = await bench.connect(0, pd=1, ord=2, emss=1460, markers=1)
        bench.grant(0, LARGE_WINDOW)
        for _ in range(good):
            bench.post(0, _write(bench, 0, 100))
        bench.regions.pop(1, None)
        bad = _write(bench, 0, 100)
        bad.elements[0] = Element(0, 100, 1)
        for entry in (bad, _write(bench, 0, 100)):
            bench.post(0, entry)
        await bench.settle()
        (error,) = bench.error_sink.take_all()
        assert error["index"] == good
        qp.running = False
        bench.drive_states()
        cause = Cause.READ_STAG_INVALID
        terminate = terminate_for(ErrorCode(*CODES[cause][0]), request)
        header = ddp.UntaggedHeader(2, 1, rsvd_ulp=0x47).encode()
        bench.expect_terminate(0, header + terminate.encode())
        bench.terminations.put(
            {
                "qp": 0,
                "may_send": 1,
                "cause": cause,
                "ulpdu_length": 46,
                "header": int.from_bytes(request, "little"),
            }
        )
        await bench.settle()
        assert not bench.terminates


@dataclass(frozen=True)
class Causes:
    """Causes whose Terminates are alike, and the rows of the requirement list about these."""

    name: str
    causes: Sequence[Cause]
    shows: Sequence[str] = ()


def _causes(name, rows, header):
    """Those that copy so much of the segment."""
    mine = [
        cause for cause, (code, _) in CODES.items() if _sent(cause) and header_copy(cause) is header
    ]
    return Causes(name, mine, rows.split())


def _sent(cause):
    code, _ = CODES[cause]
    return code is not None and cause not in (Cause.LLP_CLOSED, Cause.LLP_CLOSED_INSIDE_FPDU)


TERMINATIONS = (
    _causes("code alone", "RDMAP-4.8-12 RDMAP-7.1-02 EXT-8.1-01", HeaderCopy.NONE),
    _causes("DDP header", "RDMAP-4.8-10 RDMAP-4.8-11 RDMAP-7.1-03", HeaderCopy.DDP),
    _causes("Read Request", "RDMAP-4.8-07 RDMAP-4.8-13 RDMAP-7.1-04", HeaderCopy.READ_REQUEST),
    Causes("no FPDU", [cause for cause in CODES if not _sent(cause)]),
)


def _terminated(rng, cause):
    """Octets that an error tells and length of the segment, for a segment that fits the cause."""
    code, _ = CODES[cause]
    if cause.name.startswith("ATOMIC_"):
        return ddp.UntaggedHeader(1, 3, rsvd_ulp=0x4A).encode() + bytes(28), 70
    if code is not None and code[:2] in ((0, 1), (0, 2)) and code[2] != 9:
        request = rdmap.ReadRequest(*(rng.getrandbits(32) for _ in range(5))).encode()
        return ddp.UntaggedHeader(1, 3, rsvd_ulp=0x41).encode() + request, 46
    if code is not None and code[:2] == (1, 1):
        header = ddp.TaggedHeader(rng.getrandbits(32), rng.getrandbits(64), True, 0x40).encode()
    else:
        header = ddp.UntaggedHeader(0, 7, 100, True, 0x43).encode()
    return header + bytes(46 - len(header)), 60


async def _terminate(bench, qp, cause, may_send=True):
    """Ends a QP, and looks at the Terminate, or at the close alone."""
    rng = bench.rng
    octets, length = _terminated(rng, cause)
    expected = b""
    if may_send and _sent(cause):
        ulpdu = octets[:length] + bytes(length - len(octets))
        terminate = terminate_for(ErrorCode(*CODES[cause][0]), ulpdu)
        # RFC 5040, 4.1 and 5.4: RDMAP version 1, opcode 7; queue 2, MSN 1, MO 0.
        expected = bytes.fromhex("4147 00000000 00000002 00000001 00000000") + terminate.encode()
    bench.expect_terminate(qp, expected)
    bench.qps[qp].running = False
    bench.drive_states()
    bench.terminations.put(
        {
            "qp": qp,
            "may_send": may_send,
            "cause": cause,
            "ulpdu_length": length,
            "header": int.from_bytes(octets, "little"),
        }
    )
    await bench.settle()
    assert not bench.terminates and not bench.terminations.pending, cause.name


@cocotb.test(timeout_time=3, timeout_unit="ms")
@cocotb.parametrize(of=[cocotb.Param(each, each.name) for each in TERMINATIONS])
async def check_a_termination_becomes_a_terminate_and_a_close(dut, of):
    """Every cause, with the headers that it copies (tables 6.2 and 6.3), or no FPDU at all."""
    bench, rng = await _bench(dut)
    assert of.causes
    for number, cause in enumerate(of.causes):
        for may_send in (True, False):
            qp = number % CONFIG.qps
            await bench.connect(qp, pd=1, ord=2, emss=1460, markers=rng.randrange(2))
            bench.grant(qp, 600)
            bench.post(qp, _write(bench, qp, rng.randrange(100)))
            await bench.settle()
            await _terminate(bench, qp, cause, may_send)


@shows("RDMAP-4.1-10", "RDMAP-4.2-01", "RDMAP-5.4-01", "RDMAP-5.4-02")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_octets_of_a_terminate(dut):
    """Those before its code, as `_terminate` has them from the RFC, after other messages."""
    bench, _ = await _bench(dut)
    for cause in (Cause.CRC_ERROR, Cause.TAGGED_BOUNDS, Cause.READ_BOUNDS):
        await bench.connect(0, pd=1, ord=2, emss=1460)
        bench.grant(0, LARGE_WINDOW)
        for _ in range(2):
            bench.post(0, Entry(SendOpcode.SEND, [_element(bench, 10)]))
            stag, base = bench.add_region(1, Rights.LOCAL_WRITE, 10)
            bench.post(0, Entry(SendOpcode.RDMA_READ, [Element(base, 10, stag)]))
        await bench.settle()
        await _terminate(bench, 0, cause)


@shows("DDP-6.2-01", "DDP-6.2.2-03", "DDP-6.2.2-04")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_stream_is_not_closed_before_that_is_asked_for(dut):
    """An error is told; the stream stays as it is, for the Terminate, until a termination comes."""
    bench, _ = await _bench(dut)
    for error in (Cause.LOCAL_SEND_PROTECTION, Cause.READ_BOUNDS):
        qp = await bench.connect(0, pd=1, ord=2, emss=1460)
        bench.grant(0, LARGE_WINDOW)
        if error is Cause.READ_BOUNDS:
            stag = _inbound(bench, 0, 4000)
            region = bench.regions[stag]
            bench.regions[stag] = type(region)(**{**region.__dict__, "length": 7})
        else:
            bench.regions.pop(1, None)
            bench.post(0, Entry(SendOpcode.SEND, [Element(0, 100, 1)]))
        await bench.settle()
        (told,) = bench.error_sink.take_all()
        assert told["cause"] == error
        jobs = bench.jobs
        await ClockCycles(dut.clk, 1000)
        qp.running = False
        bench.drive_states()
        await ClockCycles(dut.clk, 1000)
        # A job with `close` that nobody asked for fails in the scoreboard.
        assert bench.jobs == jobs
        await _terminate(bench, 0, error)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_commands_and_events_pass_while_a_job_waits(dut):
    bench, _ = await _bench(dut)
    await bench.connect(0, pd=1, ord=2, emss=1460)
    bench.grant(0, LARGE_WINDOW)
    bench.job_sink.paused = True
    await RisingEdge(dut.clk)
    bench.post(0, _write(bench, 0, 10))
    while not dut.job__valid.value:
        await RisingEdge(dut.clk)
    for number in range(CONFIG.qps):
        bench.grant(number, 4000)
        await ClockCycles(dut.clk, 1)
    # The events of other QPs are taken; the first kick waits for nobody.
    await ClockCycles(dut.clk, 100)
    assert not bench.events.pending
    bench.qps[0].window = LARGE_WINDOW
    bench.job_sink.paused = False
    await bench.settle()
    assert bench.jobs == 1


# The first test waits for the compilation of the transmitter and for the simulation.
pytestmark = pytest.mark.timeout(1200)
APART = "check_(random|posted)"
"""Checks that have a simulation of their own."""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    return simulate(
        tmp_path_factory,
        Transmitter(CONFIG),
        __name__,
        "always",
        ["always"],
        test_filter="check_(?!random|posted)",
    )


@each_check(globals(), but=APART)
def test_rules(check, verdicts):
    verdicts.require(check)
