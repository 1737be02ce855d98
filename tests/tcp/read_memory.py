"""Memory that answers the reads of a block: what it has, late, or with errors."""

from collections.abc import Callable
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles

from stagecoach.gateware.host_memory import MEMORY_COMMAND, READ_WORD
from stagecoach.sim.cosim.streams import StreamSink, StreamSource


def octet_at(address: int) -> int:
    """What memory has there: near addresses, and those of other rings, have others."""
    return (address * 167 + (address >> 8) * 59 + (address >> 17) * 83) & 0xFF


def octets_at(address: int, count: int) -> bytes:
    return bytes(octet_at(address + each) for each in range(count))


class Memory:
    """Answers reads, in order; some addresses cannot be read. `contents`: what it has."""

    def __init__(
        self,
        dut: Any,
        rng: Random,
        pattern: str,
        contents: Callable[[int, int], bytes] = octets_at,
    ) -> None:
        self._contents = contents
        self.bad: set[int] = set()  # of words
        self.latency = 0  # of the next answer
        self._clk = dut.clk
        self.commands: list[tuple[int, int]] = []
        self.sink = StreamSink(dut, "read__command", MEMORY_COMMAND, rng=rng, pattern=pattern)
        self.words = StreamSource(dut, "read__data", READ_WORD, rng=rng, pattern=pattern)
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        while True:
            command = await self.sink.get()
            address, octets = command["address"], command["octets"]
            self.commands.append((address, octets))
            if self.latency:
                await ClockCycles(self._clk, self.latency)
                self.latency = 0
            for at in range(address // 8 * 8, address + octets, 8):
                data = self._contents(at, 8)
                fields = {"last": at + 8 >= address + octets, "error": at in self.bad}
                self.words.put({"data": int.from_bytes(data, "little"), **fields})
