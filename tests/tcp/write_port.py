"""Memory that answers the writes of a block late, or with errors."""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.host_memory import MEMORY_COMMAND, WORD
from stagecoach.sim.cosim.streams import StreamSink
from tests.tcp.receive_reference import Memory


class WritePort:
    """A memory that has octets when it answers, some time after their words; it may fail."""

    def __init__(self, dut: Any, rng: Random) -> None:
        self.dut, self.rng = dut, rng
        self.memory = Memory()
        self.failing: range = range(0)
        self.answers = True
        self.delays = [0, 20, 200]  # of an answer
        self.watch: Callable[[int, bytes], None] = lambda *_: None  # of each write that comes
        self._commands = StreamSink(dut, "write__command", MEMORY_COMMAND, rng=rng)
        self.words = StreamSink(dut, "write__data", WORD, rng=rng, pattern="bursty")
        self._answers: deque[tuple[int, int, bytes]] = deque()
        self._cycle = 0
        dut.write__done.value = dut.write__error.value = 0
        cocotb.start_soon(self._take())
        cocotb.start_soon(self._answer())

    @property
    def waiting(self) -> int:
        """Writes that came and have no answer."""
        return len(self._answers)

    async def _take(self) -> None:
        while True:
            command = await self._commands.get()
            address, octets = command["address"], command["octets"]
            words = [await self.words.get() for _ in range(-(-(address % 8 + octets) // 8))]
            data = b"".join(word["data"].to_bytes(8, "little") for word in words)
            part = data[address % 8 :][:octets]
            self.watch(address, part)
            self._answers.append((self._cycle + self.rng.choice(self.delays), address, part))

    async def _answer(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            self._cycle += 1
            due = self.answers and self.waiting > 0 and self._answers[0][0] <= self._cycle
            dut.write__done.value = int(due)
            dut.write__error.value = 0
            if due:
                _, address, octets = self._answers.popleft()
                fails = address in self.failing
                dut.write__error.value = int(fails)
                if not fails:
                    self.memory.write(address, octets)
