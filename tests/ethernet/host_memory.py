"""Memory of the host at the port of a block: it answers late, or with errors."""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.host_memory import MEMORY_COMMAND, READ_WORD, WORD
from stagecoach.sim.cosim.streams import StreamMonitor, StreamSink, StreamSource


class WrittenMemory:
    """Has octets when it answers for them, in order, some cycles after their last word.

    Attributes
    ----------
    latencies: cycles, one of which each write takes. answers: whether it answers at all. fails:
    whether the write to an address fails. watch: is called with address and octets of each write
    when its words are there, `answered` when it is answered.
    """

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.latencies: tuple[int, ...] = (0, 3, 60)
        self.answers = True
        self.fails: Callable[[int], bool] = lambda address: False
        self.watch: Callable[[int, bytes], None] = lambda address, octets: None
        self.answered: Callable[[int], None] = lambda address: None
        self._octets: dict[int, int] = {}
        self._dut, self._rng = dut, rng
        options: dict[str, Any] = {"rng": rng, "pattern": pattern}
        self.commands = StreamSink(dut, "write__command", MEMORY_COMMAND, **options)
        self.words = StreamSink(dut, "write__data", WORD, **options)
        for name, layout in (("write__command", MEMORY_COMMAND), ("write__data", WORD)):
            StreamMonitor(dut, name, layout, keep=False)
        self._waiting: deque[tuple[int, int, bytes]] = deque()
        self._cycle = 0
        dut.write__done.value = dut.write__error.value = 0
        cocotb.start_soon(self._take())
        cocotb.start_soon(self._answer())

    def read(self, address: int, octets: int) -> bytes:
        """What is there; 0 where nothing was written."""
        return bytes(self._octets.get(address + number, 0) for number in range(octets))

    async def _take(self) -> None:
        while True:
            command = await self.commands.get()
            address, octets = command["address"], command["octets"]
            assert address % 8 == 0
            words = [await self.words.get() for _ in range(-(-octets // 8))]
            assert [word["last"] for word in words] == [0] * (len(words) - 1) + [1]
            part = b"".join(word["data"].to_bytes(8, "little") for word in words)[:octets]
            self.watch(address, part)
            self._waiting.append((self._cycle + self._rng.choice(self.latencies), address, part))

    async def _answer(self) -> None:
        dut = self._dut
        while True:
            await RisingEdge(dut.clk)
            self._cycle += 1
            due = self.answers and len(self._waiting) > 0 and self._waiting[0][0] <= self._cycle
            dut.write__done.value = int(due)
            dut.write__error.value = 0
            if due:
                _, address, part = self._waiting.popleft()
                failed = self.fails(address)
                dut.write__error.value = int(failed)
                if not failed:
                    self._octets.update(enumerate(part, address))
                self.answered(address)


class ReadMemory:
    """Answers reads with what it has when it is asked, in order, some cycles later.

    Attributes
    ----------
    octets: by address; others are random. bad: addresses of words that cannot be read. latencies:
    cycles, one of which each read takes. commands: address and octets of each.
    """

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.octets: dict[int, int] = {}
        self.bad: set[int] = set()
        self.latencies: tuple[int, ...] = (0, 3, 60)
        self.commands: list[tuple[int, int]] = []
        self._clk, self._rng = dut.clk, rng
        self.asked = StreamSink(dut, "read__command", MEMORY_COMMAND, rng=rng, pattern=pattern)
        self.words = StreamSource(dut, "read__data", READ_WORD, rng=rng, pattern=pattern)
        StreamMonitor(dut, "read__command", MEMORY_COMMAND, keep=False)
        cocotb.start_soon(self._run())

    def write(self, address: int, octets: bytes) -> None:
        """From now on these are there."""
        self.octets.update(enumerate(octets, address))

    async def _run(self) -> None:
        rng = self._rng
        while True:
            command = await self.asked.get()
            address, octets = command["address"], command["octets"]
            self.commands.append((address, octets))
            latency = rng.choice(self.latencies)
            if latency:
                await ClockCycles(self._clk, latency)
            for at in range(address // 8 * 8, address + octets, 8):
                data = bytes(self.octets.get(at + n, rng.getrandbits(8)) for n in range(8))
                fields = {"last": at + 8 >= address + octets, "error": at in self.bad}
                self.words.put({"data": int.from_bytes(data, "little"), **fields})
