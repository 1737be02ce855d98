"""The pieces of a segment are those that its header, its receive entry or its request say."""

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.receive.decode import KIND
from stagecoach.gateware.rdmap.receive.pieces import BANKS, PIECE_WRITE, ReceivePieces
from stagecoach.sim.cosim.streams import (
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)
from stagecoach.sim.model import rdmap
from stagecoach.sim.model.atomics import AtomicRequest
from stagecoach.sim.model.ddp import UntaggedHeader
from tests.rdmap.receive import segments
from tests.rdmap.receive.model import CONFIG
from tests.rdmap.receive.test_scan import MOST_CYCLES, Entry, pieces_of, random_case
from tests.support.runner import run_cocotb

OUTSTANDING = Layouts(CONFIG).outstanding_request
SEGMENTS = 400
UNTAGGED_OCTETS = 18


def test_receive_pieces():
    run_cocotb(ReceivePieces(CONFIG), __name__, quick=True)


def junk(rng, layout):
    return unpack(layout, rng.getrandbits(width_of(layout)))


def one_piece(rng, way, payload, outstanding):
    """A segment of a kind that has one piece, and that."""
    if way == "tagged":
        stag, offset = rng.getrandbits(32), rng.getrandbits(64)
        ulpdu = segments.write(rng, 0, stag=stag, tagged_offset=offset)
        return ulpdu, (stag, offset, payload)
    if way == "read":
        ulpdu = segments.read_request(rng, 1)
        request = rdmap.ReadRequest.decode(ulpdu[UNTAGGED_OCTETS:])
        return ulpdu, (request.source_stag, request.source_tagged_offset, request.size)
    if way == "atomic":
        ulpdu = segments.atomic_request(rng, 1)
        request = AtomicRequest.decode(ulpdu[UNTAGGED_OCTETS:])
        return ulpdu, (request.stag, request.tagged_offset, 8)
    ulpdu = segments.atomic_response(rng, 1)
    return ulpdu, (outstanding["sink_stag"], outstanding["sink_tagged_offset"], 8)


WAYS = {
    "tagged": {"tagged": 1},
    "read": {"request": 1},
    "atomic": {"request": 1, "atomic_request": 1},
    "response": {"response": 1, "atomic_response": 1},
}
"""What tells segments of one piece apart."""


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_one_piece_is_written_in_every_cycle(dut):
    rng = seeded_random()
    dut.restart.value = 1
    await start_clock_and_reset(dut)
    for _ in range(SEGMENTS):
        way, payload, bank = rng.choice(list(WAYS)), rng.getrandbits(16), rng.randrange(BANKS)
        outstanding = junk(rng, OUTSTANDING)
        ulpdu, (stag, offset, octets) = one_piece(rng, way, payload, outstanding)
        # A Read Response is tagged, and that comes first.
        kind = junk(rng, KIND) | dict.fromkeys(("takes_entry", "tagged", "response"), 0)
        kind |= {"atomic_request": 0} | WAYS[way]
        kind |= {"response": rng.getrandbits(1)} if way == "tagged" else {}
        dut.header.value = int.from_bytes(ulpdu.ljust(len(dut.header) // 8, b"\xa5"), "little")
        dut.kind.value, dut.payload.value = pack(KIND, kind), payload
        dut.outstanding.value, dut.bank.value = pack(OUTSTANDING, outstanding), bank
        # What is scanned meanwhile does not count.
        dut.restart.value, dut.word.value = int(rng.random() < 0.1), rng.getrandbits(64)
        await RisingEdge(dut.clk)
        for _ in range(rng.randint(1, 3)):
            await RisingEdge(dut.clk)
            assert unpack(PIECE_WRITE, dut.piece.value) == {
                "valid": 1,
                "bank": bank,
                "number": 0,
                "piece": {"stag": stag, "tagged_offset": offset, "octets": octets},
            }


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_pieces_of_a_send_are_written_a_cycle_after_the_scan(dut):
    rng = seeded_random()
    dut.restart.value = 1
    entry = Entry(dut)
    await start_clock_and_reset(dut)
    for _ in range(SEGMENTS):
        elements, mo, payload = random_case(rng)
        expected = pieces_of(elements, mo, payload)
        header = UntaggedHeader(qn=0, msn=1, mo=mo).encode()
        bank = rng.randrange(BANKS)
        dut.restart.value = 1
        await RisingEdge(dut.clk)
        dut.header.value = int.from_bytes(header.ljust(len(dut.header) // 8, b"\xa5"), "little")
        dut.kind.value = pack(KIND, junk(rng, KIND) | {"takes_entry": 1})
        dut.payload.value, dut.bank.value = payload, bank
        entry.set(elements)
        for _ in range(2):
            await RisingEdge(dut.clk)
        dut.restart.value = 0
        written = []
        for cycle in range(MOST_CYCLES):
            await RisingEdge(dut.clk)
            one = unpack(PIECE_WRITE, dut.piece.value)
            if one["valid"] and cycle:
                assert (one["bank"], one["number"]) == (bank, len(written))
                written.append(one["piece"])
            # The last piece comes with the news that it is the last one.
            if cycle >= 3 and (dut.complete.value or dut.exhausted.value):
                break
        assert bool(dut.complete.value) == (expected is not None)
        assert dut.count.value == len(written)
        if expected is not None:
            assert written == expected
