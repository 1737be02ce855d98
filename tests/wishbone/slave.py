"""A Wishbone slave with a clock of its own, and what a master must keep to."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import cocotb
from cocotb.triggers import Event, RisingEdge, Timer

from stagecoach.sim.cosim.streams import start_clock_and_reset


@dataclass(frozen=True)
class Answer:
    """What the slave says: after so many of its cycles, or not before it is let go (`None`)."""

    value: int = 0
    cycles: int | None = 0
    error: bool = False


LEAST_CYCLES = 6
"""From the beginning of an access to that of the next one."""

Access = tuple[int, int, int | None]
"""Whether it is a write, the word's number, and what is written."""


class Slave:
    """Answers as it is told, in order; writes down what it is asked.

    prefix: of its ports. period_ns: of its clock, which stands still while `clock_stands`.
    """

    def __init__(self, dut: Any, prefix: str, period_ns: float):
        self._dut, self._prefix = dut, prefix
        self.period_ns = period_ns
        self.answers: deque[Answer] = deque()
        self.asked: list[Access] = []
        self.let_go = Event()
        self.clock_stands = False
        for name in ("ack", "err", "dat_r"):
            self._port(name).value = 0

    def _port(self, name: str) -> Any:
        return getattr(self._dut, f"{self._prefix}__{name}")

    async def start(self) -> None:
        dut = self._dut
        dut.wishbone_rst.value = 1
        cocotb.start_soon(self._clock())
        # Longer than four cycles of the slowest slave
        await start_clock_and_reset(dut, cycles=20)
        dut.wishbone_rst.value = 0
        cocotb.start_soon(self._answer())
        cocotb.start_soon(self._watch())

    async def _clock(self) -> None:
        while True:
            for level in (0, 1):
                self._dut.wishbone_clk.value = level
                await Timer(self.period_ns / 2, unit="ns", round_mode="round")
                while self.clock_stands:
                    await Timer(self.period_ns, unit="ns", round_mode="round")

    def _request(self) -> Access:
        write = int(self._port("we").value)
        word = int(self._port("adr").value)
        return write, word, int(self._port("dat_w").value) if write else None

    async def _answer(self) -> None:
        clock = RisingEdge(self._dut.wishbone_clk)
        while True:
            await RisingEdge(self._port("stb"))
            self.asked.append(self._request())
            answer = self.answers.popleft()
            if answer.cycles is None:
                await self.let_go.wait()
                self.let_go.clear()
                await clock
            for _ in range(answer.cycles or 0):
                await clock
            self._port("err" if answer.error else "ack").value = 1
            self._port("dat_r").value = answer.value
            await clock
            for name in ("ack", "err", "dat_r"):
                self._port(name).value = 0

    async def _watch(self) -> None:
        """An access stands still until it is answered, and is over then."""
        clock = RisingEdge(self._dut.wishbone_clk)
        open_access, answered = None, False
        since = LEAST_CYCLES  # the last access began
        while True:
            await clock
            cyc, stb = int(self._port("cyc").value), int(self._port("stb").value)
            assert cyc == stb
            if open_access is not None and not int(self._dut.wishbone_rst.value):
                assert stb != answered
                if stb:
                    assert self._request() == open_access
            if stb and open_access is None:
                assert since >= LEAST_CYCLES or int(self._dut.wishbone_rst.value)
                since = 0
            since += 1
            open_access = self._request() if stb else None
            answered = bool(stb and (int(self._port("ack").value) or int(self._port("err").value)))
