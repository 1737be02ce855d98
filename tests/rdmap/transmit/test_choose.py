"""What a QP sends next is what a reference in Python says of its context and its queues."""

from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.atomic.operations import AtomicStatus
from stagecoach.gateware.rdmap.transmit.choose import TransmitChoose
from stagecoach.gateware.rdmap.transmit.context import HALT, progress_layout, sends_bits
from stagecoach.gateware.rdmap.transmit.entry import (
    OPERATION,
    REMOTE_STAG_ADDRESS,
    element_offset_address,
    element_range_address,
)
from stagecoach.gateware.rdmap.transmit.message import lookup_layout, message_layout
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import IMMEDIATE_OPERATIONS, SendFlags, SendOpcode
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)
from tests.support.runner import run_cocotb

CONFIG = RnicConfig(qps=16, pending_sends=8, read_queue_depth=4)
LAYOUTS = Layouts(CONFIG)
PROGRESS, LOOKUP, MESSAGE = progress_layout(CONFIG), lookup_layout(CONFIG), message_layout(CONFIG)
SENDS = 2 ** sends_bits(CONFIG)
VISITS = 1500
LATENCY = 6
"""Cycles from `work` to `message`, or from `work` to the end of a visit without one."""


def test_transmit_choose():
    run_cocotb(TransmitChoose(CONFIG), __name__)


def _state(rng) -> dict[str, Any]:
    """All that is known of a QP."""
    progress = unpack(PROGRESS, rng.getrandbits(width_of(PROGRESS)))
    progress["active"] = int(rng.random() < 0.25)
    progress["element"] %= 4
    in_flight = rng.choice([0, 0, 1, CONFIG.pending_sends - 1, CONFIG.pending_sends])
    lookup = unpack(LOOKUP, rng.getrandbits(width_of(LOOKUP)))
    lookup["retired"] = (progress["issued"] - in_flight) % SENDS
    lookup["settings"]["ord"] = rng.randrange(5)
    lookup["mulpdu"] = rng.choice([128, 1460, 8960])
    room = rng.choice([-4, 0, 40, 2 * lookup["mulpdu"] - 4, 2 * lookup["mulpdu"], 100000])
    lookup["window"] = (progress["position"] + room) % 2**32
    lookup["atomic_status"] = rng.choice(list(AtomicStatus)).value
    entry = unpack(OPERATION, rng.getrandbits(width_of(OPERATION)))
    entry["opcode"] = rng.choice([*SendOpcode, rng.randrange(256)])
    entry["element_count"] = rng.choice([0, 1, 1, 2, 4, 5])
    entry["length"] = rng.choice([8, rng.getrandbits(32)])
    entry["flags"] &= ~SendFlags.FENCE if rng.random() < 0.6 else 0xFF
    entry["atomic_operation"] = rng.choice([0, 1, 2, 0xA5])
    posted = rng.randrange(5)
    head = unpack(LAYOUTS.inbound_read, rng.getrandbits(width_of(LAYOUTS.inbound_read)))
    return {
        "progress": progress,
        "lookup": lookup,
        "halted": int(rng.random() < 0.05),
        "runs": int(rng.random() < 0.95),
        "entry": entry,
        "posted": posted,
        "level": rng.choice([posted, rng.randint(0, posted)]),
        "index": rng.getrandbits(16),
        "inbound": rng.choice([0, 1, 2]),
        "atomic": rng.getrandbits(1),
        "head": head,
        "outstanding": rng.randrange(5),
        "strict": rng.getrandbits(1),
        "room": room,
        "in_flight": in_flight,
    }


def _bad_entry(state: dict[str, Any], takes_two: bool) -> bool:
    entry = state["entry"]
    opcode, count = entry["opcode"], entry["element_count"]
    if opcode not in list(SendOpcode) or count > 4 or (takes_two and state["posted"] == 1):
        return True
    if opcode == SendOpcode.ATOMIC:
        allowed = (0, 2) if state["strict"] else (0, 1, 2)
        return count != 1 or entry["length"] != 8 or entry["atomic_operation"] not in allowed
    if opcode in (*IMMEDIATE_OPERATIONS, SendOpcode.LOCAL_INVALIDATE):
        return count != 0
    if opcode == SendOpcode.FAST_REGISTER:
        return count != 1
    return opcode == SendOpcode.RDMA_READ and count > 1


def _expected(state: dict[str, Any]) -> dict[str, Any] | None:
    """Fields of the message that is chosen; None if nothing can be sent."""
    entry, progress, lookup = state["entry"], state["progress"], state["lookup"]
    if state["halted"] or not state["runs"]:
        return None
    opcode = entry["opcode"]
    takes_two = entry["element_count"] > 2 or opcode == SendOpcode.ATOMIC
    asks_peer = opcode in (SendOpcode.RDMA_READ, SendOpcode.ATOMIC)
    begun = progress["atomic_begun"]
    can_respond = state["inbound"] and (not begun or lookup["answered"])
    if state["atomic"] and not begun and lookup["leaving"]:
        can_respond = False
    can_send = (
        state["level"] >= (2 if takes_two and state["posted"] != 1 else 1)
        and state["in_flight"] < CONFIG.pending_sends
        and not (asks_peer and state["outstanding"] >= lookup["settings"]["ord"])
        and not (entry["flags"] & SendFlags.FENCE and state["in_flight"])
    )
    if progress["active"]:
        respond = progress["responding"]
    elif can_respond and can_send:
        respond = progress["prefer_response"]
    elif can_respond or can_send:
        respond = int(bool(can_respond))
    else:
        return None
    atomic = respond and state["atomic"]
    begins, answers = int(atomic and not begun), int(atomic and begun)
    own = not respond
    more_units = 2 if takes_two else 1
    if respond:
        more = state["level"] > 0 or (state["inbound"] > 1 and not begins)
        length = 8 if atomic else state["head"]["length"]
    else:
        more = state["inbound"] > 0 or state["level"] > more_units
        length = entry["length"]
    immediate = opcode in IMMEDIATE_OPERATIONS
    fpdu = max(2 * lookup["mulpdu"], 256)  # the longest one; a little more may be asked for
    failed = int(answers and lookup["atomic_status"] != AtomicStatus.DONE.value)
    fields = {
        "terminating": 0,
        "responding": respond,
        "begins_atomic": begins,
        "answers_atomic": answers,
        "bare": answers,
        "is_read": int(own and opcode == SendOpcode.RDMA_READ),
        "is_atomic": int(own and opcode == SendOpcode.ATOMIC),
        "is_immediate": int(own and immediate),
        "is_local": int(own and opcode in (SendOpcode.LOCAL_INVALIDATE, SendOpcode.FAST_REGISTER)),
        "inline": int(answers or (own and (asks_peer or immediate))),
        "tagged": int(not atomic if respond else opcode == SendOpcode.RDMA_WRITE),
        "failed": failed,
        "bad_entry": int(own and _bad_entry(state, takes_two)),
        "takes_two": int(takes_two),
        "index": state["index"],
        "entry": entry,
        "progress": progress,
        "remaining": progress["remaining"] if progress["active"] else length,
        "room": max(state["room"], 0),
        "tagged_capacity": lookup["mulpdu"] - 14,
        "untagged_capacity": lookup["mulpdu"] - 18,
        "more": int(more),
        "inbound": state["head"] | ({"length": 8} if state["atomic"] else {}),
    }
    if state["room"] < fpdu:
        fields["roomy"] = 0
    elif state["room"] >= fpdu + 256:
        fields["roomy"] = 1
    if failed:
        read_error = lookup["atomic_status"] == AtomicStatus.READ_ERROR.value
        fields["cause"] = Cause.HOST_READ_ERROR if read_error else Cause.HOST_WRITE_ERROR
    return fields


def _show(dut, state: dict[str, Any], qp: int) -> None:
    """Drive what the tables and queues say."""
    dut.progress.value = pack(PROGRESS, state["progress"])
    dut.lookup.value = pack(LOOKUP, state["lookup"])
    dut.halt.value = pack(HALT, halted=state["halted"], units=state.get("units", 0))
    dut.running.value = dut.may_send.value = (1 << CONFIG.qps) - 1
    if not state["runs"]:
        dut.running.value = ((1 << CONFIG.qps) - 1) & ~(1 << qp)
    dut.word.value = pack(OPERATION, state["entry"])
    dut.level.value, dut.posted.value = state["level"], state["posted"]
    dut.index.value = state["index"]
    inbound = {"atomic": state["atomic"], "of": pack(LAYOUTS.inbound_read, state["head"])}
    dut.inbound_head.value = pack(LAYOUTS.inbound_request, inbound)
    dut.inbound_level.value, dut.outstanding_level.value = state["inbound"], state["outstanding"]
    dut.strict.value = state["strict"]


async def _start(dut):
    rng = seeded_random()
    for name in ("work", "termination", "qp_command"):
        getattr(dut, f"{name}__valid").value = 0
    dut.message__ready.value = dut.command__ready.value = 0
    dut.speak.value = dut.terminate_octets.value = 0
    dut.free.value = dut.may_begin.value = 1
    for name in ("message", "command"):
        StreamMonitor(dut, name, keep=False)
    _show(dut, _state(rng), 0)
    await start_clock_and_reset(dut)
    return rng


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_the_message_is_that_of_the_reference(dut):
    rng = await _start(dut)
    outcomes = dict.fromkeys(("send", "response", "begins", "answers", "nothing"), 0)
    for _ in range(VISITS):
        state, qp = _state(rng), rng.randrange(CONFIG.qps)
        _show(dut, state, qp)
        dut.work__payload.value, dut.work__valid.value = qp, 1
        await RisingEdge(dut.clk)
        assert int(dut.coming.value) == qp
        cycles, begun, addresses = 0, 0, deque(maxlen=3)
        while True:
            await RisingEdge(dut.clk)
            cycles += 1
            begun += bool(dut.begin.value)
            if dut.work__ready.value:
                dut.work__valid.value = 0
            if dut.message__valid.value or dut.end.value:
                break
            addresses.append(int(dut.word_address.value))
            assert int(dut.qp.value) == int(dut.asked.value) == qp
        expected = _expected(state)
        assert begun == 1
        assert bool(dut.end.value) == (expected is None)
        if expected is None:
            outcomes["nothing"] += 1
            assert cycles in (4, 5)
            await RisingEdge(dut.clk)
            continue
        kind = (
            ("begins" if expected["begins_atomic"] else "response")
            if expected["responding"]
            else "send"
        )
        outcomes["answers" if expected["answers_atomic"] else kind] += 1
        assert cycles == LATENCY - 1 + expected["answers_atomic"]
        element = state["progress"]["element"]
        if not expected["bare"]:
            assert list(addresses) == [
                int(element_range_address(element)),
                int(element_offset_address(element)),
                REMOTE_STAG_ADDRESS,
            ]
        payload = unpack(MESSAGE, dut.message__payload.value)
        assert payload["qp"] == qp
        wrong = {
            name: (payload[name], value)
            for name, value in expected.items()
            if payload[name] != value
        }
        assert not wrong, state
        # What happens to the QP while its message is at work changes nothing.
        _show(dut, _state(rng), qp)
        dut.work__valid.value = rng.getrandbits(1)
        for _ in range(rng.randrange(3)):
            await RisingEdge(dut.clk)
            assert dut.message__valid.value and not dut.work__ready.value
        dut.work__valid.value, dut.message__ready.value = 0, 1
        await RisingEdge(dut.clk)
        dut.message__ready.value = 0
        await RisingEdge(dut.clk)
        assert not dut.message__valid.value
    assert min(outcomes.values()) > VISITS // 50, outcomes


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_atomic_begins_alone(dut):
    """It waits until nothing of its QP is under way, and looks at the QP again."""
    rng = await _start(dut)
    state = _state(rng)
    state |= {"halted": 0, "runs": 1, "inbound": 1, "atomic": 1, "level": 0}
    state["progress"] |= {"active": 0, "atomic_begun": 0}
    state["lookup"]["leaving"] = 0
    before = 0
    for number in range(24):
        busy, qp = number // 2 + 8, rng.choice((3, 4))
        _show(dut, state, qp)
        dut.free.value = 0
        dut.work__payload.value, dut.work__valid.value = qp, 1
        cycles = 0
        while not dut.message__valid.value:
            await RisingEdge(dut.clk)
            cycles += 1
            assert cycles < 40
            if dut.work__ready.value:
                dut.work__valid.value = 0
            dut.free.value = cycles >= busy
        # From `free` on the context, the queues and the choice. What is under way is of the QP that
        # was visited before.
        assert cycles == (busy + 5 if qp == before else LATENCY)
        before = qp
        dut.message__ready.value = 1
        await RisingEdge(dut.clk)
        dut.message__ready.value = 0
        await RisingEdge(dut.clk)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_commands_go_first_and_terminations_second(dut):
    """Both wait until nothing is under way; a QP waits until no error is in the way."""
    rng = await _start(dut)
    command = pack(LAYOUTS.qp_command, qp=5)
    dut.free.value = dut.may_begin.value = 0
    dut.qp_command__payload.value, dut.qp_command__valid.value = command, 1
    termination = pack(LAYOUTS.termination, qp=6)
    dut.termination__payload.value, dut.termination__valid.value = termination, 1
    dut.work__payload.value, dut.work__valid.value = 7, 1
    dut.speak.value, dut.terminate_octets.value = 1, 24
    state = _state(rng)
    state |= {"halted": 1, "units": 77}
    _show(dut, state, 6)
    for _ in range(5):
        await RisingEdge(dut.clk)
        assert not dut.command__valid.value and not dut.message__valid.value
    dut.free.value = 1
    for _ in range(2):
        await RisingEdge(dut.clk)
    for _ in range(3):
        await RisingEdge(dut.clk)
        assert dut.command__valid.value and not dut.qp_command__ready.value
        assert int(dut.qp.value) == 5
    dut.command__ready.value = 1
    await RisingEdge(dut.clk)
    assert dut.qp_command__ready.value
    dut.command__ready.value = dut.qp_command__valid.value = 0
    measured = cycles = 0
    await RisingEdge(dut.clk)
    while not dut.message__valid.value:
        measured += bool(dut.measure.value and dut.unlimited.value)
        assert int(dut.bare_octets.value) == 24 or not cycles
        await RisingEdge(dut.clk)
        cycles += 1
    assert (cycles, measured) == (4, 1)
    payload = unpack(MESSAGE, dut.message__payload.value)
    progress = state["progress"]
    # It stands where the FPDU that failed would have stood.
    position = progress["position"] & ~(127 << 2) | 77 << 2
    assert payload["progress"] == progress | {"position": position, "done": 0}
    assert (payload["qp"], payload["terminating"], payload["bare"]) == (6, 1, 1)
    assert (payload["inline"], payload["tagged"], payload["failed"]) == (1, 0, 0)
    assert not dut.termination__ready.value
    dut.message__ready.value = 1
    await RisingEdge(dut.clk)
    assert dut.termination__ready.value
    dut.message__ready.value = dut.termination__valid.value = 0
    for _ in range(5):
        await RisingEdge(dut.clk)
        assert not dut.begin.value
    dut.may_begin.value = 1
    for _ in range(3):
        await RisingEdge(dut.clk)
    assert dut.work__ready.value or int(dut.qp.value) == 7
