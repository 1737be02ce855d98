"""An FPDU is cut by the MULPDU and into pieces of the elements, as a plain count of octets does."""

from dataclasses import dataclass
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.transmit.cut import TransmitCut
from stagecoach.gateware.rdmap.transmit.entry import (
    OPERATION,
    REMOTE_STAG_ADDRESS,
    element_offset_address,
    element_range_address,
)
from stagecoach.gateware.rdmap.transmit.message import message_layout, piece_layout
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import (
    IMMEDIATE_OPERATIONS,
    SCATTER_GATHER_ELEMENTS,
    SendOpcode,
)
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)
from tests.rdmap.transmit.bench import Element, Entry
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig()
MESSAGES = 400
FIRST, MORE, SUM, EMPTY, OPERANDS = 4, 7, 11, 6, 6
"""Cycles until the first piece, from one to the next, and what else adds to them."""


@pytest.mark.parametrize("pattern", ["always", "random"])
def test_transmit_cut(pattern):
    run_cocotb(TransmitCut(CONFIG), __name__, parameters={"PATTERN": pattern})


@dataclass
class Case:
    """What is sent of a message in one visit."""

    entry: Entry
    fields: dict[str, Any]
    payload: int
    pieces: list[dict[str, int]]  # the last one may have failed
    delays: list[int]  # cycles to each of them


def _walk(entry: Entry, element: int, offset: int, left: int) -> tuple[list, list]:
    """The pieces from an element on, and the cycles to each."""
    pieces, delays, delay = [], [], FIRST
    while True:
        if element >= len(entry.elements):
            return [*pieces, {"failed": 1, "cause": Cause.LOCAL_BAD_ENTRY}], [*delays, delay - 5]
        of = entry.elements[element]
        octets = min(left, of.length - offset)
        if octets or not left:
            pieces.append(
                {
                    "asks": int(left != 0),
                    "element": element,
                    "element_stag": of.stag,
                    "address": (of.tagged_offset + offset) % 2**64,
                    "octets": octets,
                    "covers": int(octets == left),
                    "exhausted": int(octets == of.length - offset),
                }
            )
            delays.append(delay)
            delay = MORE
        else:
            delay += EMPTY
        left -= octets
        if not left:
            return pieces, delays
        element, offset = element + 1, 0


def _message(rng) -> Case:
    """A Send, an RDMA Write or a Read Request that begins, goes on, or has a wrong length."""
    opcode = rng.choice([SendOpcode.SEND, SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ])
    is_read = opcode == SendOpcode.RDMA_READ
    count = 1 if is_read else rng.randint(1, SCATTER_GATHER_ELEMENTS)
    lengths = [rng.choice([0, rng.randint(1, 99), rng.randint(1, 3000)]) for _ in range(count)]
    elements = [Element(rng.getrandbits(64), length, rng.getrandbits(32)) for length in lengths]
    wrong = rng.choice([0, 0, 0, 1, -1]) if sum(lengths) else 0
    entry = Entry(opcode, elements, rng.getrandbits(32), rng.getrandbits(64))
    total = sum(lengths)
    entry.length = total + wrong
    fields: dict[str, Any] = {"is_read": is_read, "inline": is_read}
    fields["tagged"] = opcode == SendOpcode.RDMA_WRITE
    capacity = rng.choice([50, 1442, 60000])
    fields["tagged_capacity" if fields["tagged"] else "untagged_capacity"] = capacity
    done = element = offset = 0
    active = not is_read and total > 1 and rng.random() < 0.5
    if active:
        done = offset = rng.randint(1, total - 1)
        while offset >= lengths[element]:
            offset -= lengths[element]
            element += 1
        entry.length = total  # it was compared in the first visit
        wrong = 0
    remaining = entry.length - done
    fields["progress"] = {"active": active, "element": element, "offset": offset, "done": done}
    fields["remaining"] = remaining
    payload = 28 if is_read else min(remaining, capacity)
    if wrong:
        pieces = [{"failed": 1, "cause": int(Cause.LOCAL_BAD_ENTRY)}]
        delays = [3]
    else:
        pieces, delays = _walk(entry, element, offset, remaining if is_read else payload)
    if count > 1 and not active:
        delays[0] += SUM
    return Case(entry, fields, payload, pieces, delays)


def _response(rng) -> Case:
    """A part of a Read Response: its source is one element."""
    length = rng.randint(1, 5000)
    done = rng.choice([0, rng.randrange(length)])
    capacity = rng.choice([50, 1442])
    source = Element(rng.getrandbits(64), length, rng.getrandbits(32))
    payload = min(length - done, capacity)
    fields = {
        "responding": 1,
        "tagged": 1,
        "tagged_capacity": capacity,
        "remaining": length - done,
        "progress": {"active": int(done != 0), "responding": 1, "done": done},
        "inbound": {
            "source_stag": source.stag,
            "source_tagged_offset": source.tagged_offset,
            "sink_stag": rng.getrandbits(32),
            "sink_tagged_offset": rng.getrandbits(64),
            "length": length,
        },
    }
    pieces, delays = _walk(Entry(SendOpcode.SEND, [source]), 0, done, payload)
    noise = Entry(SendOpcode.SEND, [Element(rng.getrandbits(64), rng.getrandbits(16), 1)] * 4)
    return Case(noise, fields, payload, pieces, delays)


def _bare(rng) -> Case:
    """A Terminate or an Atomic Response, which may be an error."""
    failed = rng.getrandbits(1)
    cause = int(Cause.HOST_READ_ERROR) if failed else 0
    fields = {"bare": 1, "inline": 1, "failed": failed, "cause": cause}
    expected = {"asks": 0, "failed": failed} | ({"cause": cause} if failed else {})
    return Case(Entry(SendOpcode.SEND, []), fields, 0, [expected], [0])


def _atomic(rng) -> Case:
    """An Atomic Request, with its operands."""
    element = Element(rng.getrandbits(64), 8, rng.getrandbits(32))
    operands = tuple(rng.getrandbits(64) for _ in range(4))
    entry = Entry(SendOpcode.ATOMIC, [element], 5, 6, operands=operands)
    fields = {"is_atomic": 1, "inline": 1, "remaining": 8, "untagged_capacity": 1442}
    pieces, _ = _walk(entry, 0, 0, 8)
    pieces[0]["operands"] = list(operands)
    return Case(entry, fields, 52, pieces, [FIRST + OPERANDS])


def _immediate(rng) -> Case:
    """Immediate Data: its octets are a word of the entry, and no piece is asked about."""
    octets = rng.randbytes(8)
    entry = Entry(IMMEDIATE_OPERATIONS[0], [], immediate_data=octets)
    fields = {"is_immediate": 1, "inline": 1, "remaining": 8, "untagged_capacity": 0}
    piece = {"asks": 0, "remote_offset": int.from_bytes(octets, "little")}
    return Case(entry, fields, 8, [piece], [FIRST])


KINDS = (_message, _message, _response, _bare, _atomic, _immediate)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_pieces_are_those_of_the_elements(dut):
    rng = seeded_random(parameter("PATTERN"))
    slow = parameter("PATTERN") != "always"
    message_bits, layout = message_layout(CONFIG), piece_layout(CONFIG)
    StreamMonitor(dut, "piece", keep=False)
    dut.message__valid.value = dut.piece__ready.value = dut.over.value = 0
    dut.word.value = dut.bare_octets.value = 0
    await start_clock_and_reset(dut)
    failed = given_up = measured = 0
    for number in range(MESSAGES):
        case = KINDS[number % len(KINDS)](rng)
        words = case.entry.words()
        element = case.fields.get("progress", {}).get("element", 0)
        # What was asked for before the message comes.
        coming = [
            int(element_range_address(element)),
            int(element_offset_address(element)),
            REMOTE_STAG_ADDRESS,
        ]
        bare_octets = rng.randrange(53)
        dut.bare_octets.value = bare_octets
        dut.message__payload.value = rng.getrandbits(width_of(message_bits))
        for _ in range(rng.randint(3, 6)):
            await RisingEdge(dut.clk)
            assert not dut.piece__valid.value and not dut.message__ready.value
        operation = unpack(OPERATION, words[0])
        dut.message__payload.value = pack(message_bits, entry=operation, **case.fields)
        dut.message__valid.value = 1
        expected, delays = list(case.pieces), list(case.delays)
        delay, taken = 0, False
        while expected:
            dut.word.value = words[coming.pop(0)]
            ready = not slow or rng.random() < 0.3
            over = ready and delay >= delays[0]
            over &= len(expected) == 1 or (slow and rng.random() < 0.1)
            dut.piece__ready.value, dut.over.value = ready, over
            await RisingEdge(dut.clk)
            coming.append(int(dut.word_address.value) % len(words))
            measured += bool(dut.measure.value)
            valid = bool(dut.piece__valid.value)
            assert valid == (delay >= delays[0]), (case, delay)
            taken = valid and ready
            assert bool(dut.message__ready.value) == (taken and over)
            delay += 1
            if not taken:
                continue
            piece = unpack(layout, dut.piece__payload.value)
            found = {name: piece[name] for name in expected[0]}
            assert found == expected[0], case
            assert piece["message"]["entry"] == operation
            failed += piece["failed"]
            if not piece["failed"]:
                assert piece["payload"] == (
                    case.payload or bare_octets * case.fields.get("bare", 0)
                )
            if over:
                given_up += len(expected) > 1
                break
            expected.pop(0)
            delays.pop(0)
            delay = 1
        dut.message__valid.value = 0
        dut.piece__ready.value = dut.over.value = 0
        await RisingEdge(dut.clk)
        assert not dut.piece__valid.value
    assert failed > MESSAGES // 20
    assert given_up or not slow
    # Once for each FPDU that has an element, or the like.
    assert measured == sum(KINDS[number % len(KINDS)] is not _bare for number in range(MESSAGES))
