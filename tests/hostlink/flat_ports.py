"""The other side of ports that are no streams: channels of AXI and of the LLP port."""

import random
from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.sim.cosim.streams import active_cycles


class Channel:
    """The ports of the channel `prefix`: `valid`, `ready` and its fields."""

    def __init__(
        self, dut: Any, prefix: str, fields: tuple[str, ...], rng: random.Random, pattern: str
    ) -> None:
        self._dut = dut
        self._valid, self._ready = (getattr(dut, prefix + name) for name in ("valid", "ready"))
        self._fields = {field: getattr(dut, prefix + field) for field in fields}
        self._willing = active_cycles(pattern, rng)
        self.items: deque[dict[str, int]] = deque()


class Source(Channel):
    """Offers items to the channel `prefix`; the fields mean nothing while none is offered."""

    def __init__(
        self, dut: Any, prefix: str, fields: tuple[str, ...], rng: random.Random, pattern: str
    ) -> None:
        self._rng = random.Random(rng.getrandbits(64))
        super().__init__(dut, prefix, fields, rng, pattern)
        self.taken = 0
        self._valid.value = 0
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        offering = False
        while True:
            await RisingEdge(self._dut.clk)
            if self._dut.rst.value:
                continue
            if offering and self._ready.value:
                self.items.popleft()
                self.taken += 1
                offering = False
            if not offering:
                offering = bool(self.items) and next(self._willing)
                self._valid.value = int(offering)
                for name, port in self._fields.items():
                    noise = self._rng.getrandbits(len(port))
                    port.value = self.items[0][name] if offering else noise


class Sink(Channel):
    """Takes items from the channel `prefix`, and asserts that what is offered is held."""

    def __init__(
        self, dut: Any, prefix: str, fields: tuple[str, ...], rng: random.Random, pattern: str
    ) -> None:
        super().__init__(dut, prefix, fields, rng, pattern)
        self._prefix = prefix
        self.paused = False
        self._ready.value = 0
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        held: dict[str, int] | None = None
        ready = False
        while True:
            await RisingEdge(self._dut.clk)
            if self._dut.rst.value:
                continue
            assert held is None or self._valid.value, f"{self._prefix}valid dropped"
            if self._valid.value:
                item = {name: int(port.value) for name, port in self._fields.items()}
                assert held in (None, item), f"{self._prefix}: {held} became {item}"
                held = item
                if ready:
                    self.items.append(item)
                    held = None
            ready = next(self._willing) and not self.paused
            self._ready.value = int(ready)


async def until(dut: Any, condition: Any, cycles: int = 20000) -> None:
    """Waits for what `condition()` says."""
    for _ in range(cycles):
        if condition():
            return
        await RisingEdge(dut.clk)
    raise AssertionError(f"it did not come in {cycles} cycles")
