"""The payload of a segment is cut over the elements of a receive entry as a list would be."""

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.rdmap.receive.scan import ELEMENT, ENTRY_WORDS, PIECE, ReceiveScan
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset, unpack
from tests.support.runner import run_cocotb

CASES = 600
WORD_MASK = 2**64 - 1
LONGEST_PAYLOAD = 64750
# Cycles after the restart, the first one being 0, from which inputs and outputs must be right.
INPUTS_FROM = 2
OUTPUTS_FROM = 3
READ_FROM = ENTRY_WORDS + 2  # in the cycle after that of the last word
MOST_CYCLES = OUTPUTS_FROM + ENTRY_WORDS + 4


def test_receive_scan():
    run_cocotb(ReceiveScan(), __name__)


def pieces_of(elements, mo, payload):
    """The pieces of a segment; None if the entry is too short for it."""
    pieces, position = [], 0
    end = mo + payload
    for element in elements:
        start, stop = max(position, mo), min(position + element["length"], end)
        if start < stop:
            tagged_offset = (element["tagged_offset"] + start - position) % 2**64
            pieces.append(
                {"stag": element["stag"], "tagged_offset": tagged_offset, "octets": stop - start}
            )
        position += element["length"]
    return pieces if position >= end or not payload else None


def random_case(rng):
    """Elements, MO and payload; MO and end often at the border of an element or of all of them."""
    top = rng.choice([3, 100, LONGEST_PAYLOAD, 2**32 - 1])
    elements = [
        {
            "tagged_offset": rng.getrandbits(64),
            "length": rng.choice([0, rng.randint(0, top)]),
            "stag": rng.getrandbits(32),
        }
        for _ in range(SCATTER_GATHER_ELEMENTS)
    ]
    borders = [sum(e["length"] for e in elements[:n]) for n in range(SCATTER_GATHER_ELEMENTS + 1)]
    mo = rng.choice([rng.choice(borders) + rng.randint(-1, 1), rng.randint(0, borders[-1])])
    mo = max(0, min(mo, borders[-1], 2**32 - 1))
    end = rng.choice([rng.choice(borders) + rng.randint(-1, 1), mo + rng.randint(0, top)])
    return elements, mo, max(0, min(end - mo, LONGEST_PAYLOAD))


class Entry:
    """The oldest receive entry: a word two cycles after its address."""

    def __init__(self, dut):
        self.words = [0] * ENTRY_WORDS
        self._dut = dut
        cocotb.start_soon(self._run())

    def set(self, elements):
        bits = 0
        for number, element in enumerate(elements):
            bits |= pack(ELEMENT, element) << ELEMENT.size * number
        self.words = [bits >> 64 * number & WORD_MASK for number in range(ENTRY_WORDS)]

    async def _run(self):
        address = 0
        while True:
            await RisingEdge(self._dut.clk)
            self._dut.word.value = self.words[address]
            address = int(self._dut.word_address.value)


async def scan(dut, rng, entry, case, cycles):
    """Restart and run for some cycles; return the pieces, and whether that was all (None: unknown).

    It ends early when all pieces are there.
    """
    elements, mo, payload = case
    dut.restart.value = 1
    for _ in range(rng.randint(1, 3)):
        dut.mo.value, dut.payload.value = rng.getrandbits(32), rng.getrandbits(16)
        await RisingEdge(dut.clk)
    dut.restart.value = 0
    entry.set(elements)
    pieces = []
    for cycle in range(cycles):
        if cycle == INPUTS_FROM:
            dut.mo.value, dut.payload.value = mo, payload
        await RisingEdge(dut.clk)
        assert int(dut.read.value) == (cycle >= READ_FROM), cycle
        if cycle >= OUTPUTS_FROM:
            assert int(dut.count.value) == len(pieces)
            if dut.complete.value or dut.exhausted.value:
                assert not dut.piece_valid.value
                return pieces, bool(dut.complete.value)
        if dut.piece_valid.value:
            pieces.append(unpack(PIECE, dut.piece.value))
    return pieces, None


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_pieces_are_those_of_the_model(dut):
    rng = seeded_random()
    dut.restart.value = 1
    entry = Entry(dut)
    await start_clock_and_reset(dut)
    too_long = split = 0
    for _ in range(CASES):
        if rng.random() < 0.2:
            # Another segment's scan is not waited for.
            await scan(dut, rng, entry, random_case(rng), rng.randrange(MOST_CYCLES))
        case = random_case(rng)
        expected = pieces_of(*case)
        pieces, complete = await scan(dut, rng, entry, case, MOST_CYCLES)
        assert complete is (expected is not None), case
        if expected is not None:
            assert pieces == expected, case
            split += len(pieces) > 1
        too_long += expected is None
    assert too_long > CASES // 10
    assert split > CASES // 12
