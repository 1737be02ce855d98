"""The AXI4-Lite master of cocotbext-axi on the register port of the device under test."""

import random
from collections.abc import Iterator
from typing import Any

from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp

OKAY, SLVERR = AxiResp.OKAY, AxiResp.SLVERR


class RegisterMaster:
    """Reads and writes 32-bit registers; with `pauses`, every channel stalls at random."""

    def __init__(self, dut: Any, rng: random.Random, *, pauses: bool):
        # The model puts one underscore after the prefix, the exported names have two.
        self._axi = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "bus_"), dut.clk, dut.rst)
        if pauses:
            write, read = self._axi.write_if, self._axi.read_if
            for channel in (write.aw_channel, write.w_channel, write.b_channel):
                channel.set_pause_generator(_pauses(rng))
            for channel in (read.ar_channel, read.r_channel):
                channel.set_pause_generator(_pauses(rng))

    async def read(self, address: int) -> tuple[int, AxiResp]:
        """The word at an address, and the response."""
        answer = await self._axi.read(address, 4)
        return int.from_bytes(answer.data, "little"), answer.resp

    async def write(self, address: int, word: int, octets: int = 4) -> AxiResp:
        """Writes the low `octets` of a word; returns the response."""
        answer = await self._axi.write(address, word.to_bytes(4, "little")[:octets])
        return answer.resp


def _pauses(rng: random.Random) -> Iterator[bool]:
    while True:
        yield from [rng.random() < 0.5] * rng.randrange(1, 4)
