"""The sum and the update of the checksum are those of RFC 1071 and RFC 1624."""

from itertools import product
from random import Random
from typing import Any

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge, Timer

from stagecoach.gateware.ip.checksum import Checksum, updated
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.sim.model.tcp.vectors import VECTORS
from tests.support.runner import run_cocotb


class Both(wiring.Component):
    """The block, and the function beside it."""

    def __init__(self) -> None:
        words = {"checksum": In(16), "old": In(16), "new": In(16), "updated": Out(16)}
        self._block = Checksum()
        super().__init__({**self._block.signature.members, **words})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.block = block = self._block
        for name, member in block.signature.members.items():
            outer, inner = getattr(self, name), getattr(block, name)
            m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
        m.d.comb += self.updated.eq(updated(self.checksum, self.old, self.new))
        return m


@pytest.mark.requirement("CKS-1-01", "CK-3-01", "TCP-3.1-03")
def test_checksum() -> None:
    run_cocotb(Both(), __name__)


class Bench:
    def __init__(self, dut: Any, rng: Random) -> None:
        self.dut, self.rng = dut, rng
        self.sums: list[int] = []
        dut.valid.value = 0
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            if not self.dut.rst.value and self.dut.done.value:
                self.sums.append(int(self.dut.sum.value))

    async def add(self, data: bytes, lane: int, *, gaps: bool) -> None:
        """Have octets summed that begin in a lane; noise stands beside them."""
        dut, rng = self.dut, self.rng
        words = max(-(-(lane + len(data)) // 8), 1)
        padded = rng.randbytes(lane) + data
        padded += rng.randbytes(8 * words - len(padded))
        for number in range(words):
            while gaps and rng.random() < 0.4:
                dut.valid.value, dut.word.value = 0, rng.getrandbits(64)
                await RisingEdge(dut.clk)
            places = range(8 * number, 8 * number + 8)
            lanes = sum(1 << at % 8 for at in places if lane <= at < lane + len(data))
            dut.word.value = int.from_bytes(padded[8 * number : 8 * number + 8], "little")
            dut.valid.value, dut.lanes.value = 1, lanes
            dut.first.value, dut.last.value = number == 0, number == words - 1
            dut.odd.value = lane % 2
            await RisingEdge(dut.clk)
        dut.valid.value = 0


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_sums_are_the_known_ones_at_every_alignment(dut: Any) -> None:
    bench = Bench(dut, seeded_random())
    await start_clock_and_reset(dut)
    expected = []
    for gaps in (False, True):
        for vector in VECTORS["checksum"]:
            for lane in range(8):
                await bench.add(bytes.fromhex(vector["data_hex"]), lane, gaps=gaps)
                expected.append(int(vector["sum"], 16))
    for _ in range(Checksum.LATENCY + 1):
        await RisingEdge(dut.clk)
    assert bench.sums == expected


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_longest_frame_does_not_wrap(dut: Any) -> None:
    bench = Bench(dut, seeded_random())
    await start_clock_and_reset(dut)
    await bench.add(b"\xff" * 65534 + b"\x00\x01", 0, gaps=False)
    for _ in range(Checksum.LATENCY + 1):
        await RisingEdge(dut.clk)
    assert bench.sums == [1]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_updates_are_the_known_ones(dut: Any) -> None:
    for vector in VECTORS["incremental"]:
        words = (int(vector[name], 16) for name in ("old_checksum", "old_word", "new_word"))
        dut.checksum.value, dut.old.value, dut.new.value = words
        await Timer(1, "ns")
        assert int(dut.updated.value) == int(vector["new_checksum"], 16), vector["name"]


EDGES = (0x0000, 0x0001, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF)


def checksum_of(*words: int) -> int:
    """RFC 1071, 1: the complement of the sum, in which what overflows is added below."""
    total = sum(words)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_update_is_the_checksum_of_the_changed_words(dut: Any) -> None:
    """RFC 1624, 3, with every carry. Data of a header is never all zeros."""
    for old, new, other in product(EDGES, EDGES, EDGES[1:]):
        dut.checksum.value, dut.old.value, dut.new.value = checksum_of(old, other), old, new
        await Timer(1, "ns")
        assert int(dut.updated.value) == checksum_of(new, other), (old, new, other)
