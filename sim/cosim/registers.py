"""AXI4-Lite master of the device's register port."""

import random
from typing import Any

from cocotb.triggers import Lock, RisingEdge

INPUTS = (
    *("awvalid", "awaddr", "awprot", "wvalid", "wdata", "wstrb", "bready"),
    *("arvalid", "araddr", "arprot", "rready"),
)
"""Of the device; all have a value from the start, for simulators that know unknown ones."""


class RegisterMaster:
    """Reads and writes registers at `<prefix>__ar...` and so on, one access at a time.

    Parameters
    ----------
    dut, prefix, clock: the port. rng: if given, every channel pauses at random.
    """

    def __init__(self, dut: Any, prefix: str, clock: Any, *, rng: random.Random | None = None):
        self._edge = RisingEdge(clock)
        self._rng = rng
        self._lock = Lock()
        names = (
            "awaddr awprot awvalid awready wdata wstrb wvalid wready bresp bvalid bready "
            "araddr arprot arvalid arready rdata rresp rvalid rready"
        )
        self._p = {name: getattr(dut, f"{prefix}__{name}") for name in names.split()}
        for name in INPUTS:
            self._p[name].value = 0

    async def _pause(self) -> None:
        while self._rng is not None and self._rng.random() >= 0.7:
            await self._edge

    async def _offer(self, *channels: str) -> None:
        """Raises valid of the channels and waits until all were taken."""
        p = self._p
        offered: set[str] = set()
        waiting = list(channels)
        while waiting:
            for channel in waiting:
                if self._rng is None or self._rng.random() < 0.7:
                    p[f"{channel}valid"].value = 1
                    offered.add(channel)
            await self._edge
            for channel in sorted(offered):
                if p[f"{channel}ready"].value == 1:
                    p[f"{channel}valid"].value = 0
                    offered.remove(channel)
                    waiting.remove(channel)

    async def _take(self, channel: str) -> None:
        """Waits for the answer on a channel."""
        p = self._p
        await self._pause()
        p[f"{channel}ready"].value = 1
        while True:
            await self._edge
            if p[f"{channel}valid"].value == 1:
                break
        p[f"{channel}ready"].value = 0

    async def write(self, address: int, value: int) -> int:
        """Writes a register; returns the response."""
        p = self._p
        async with self._lock:
            p["awaddr"].value, p["wdata"].value, p["wstrb"].value = address, value, 0xF
            await self._offer("aw", "w")
            await self._take("b")
            return int(p["bresp"].value)

    async def read(self, address: int) -> tuple[int, int]:
        """Reads a register; returns its value and the response."""
        p = self._p
        async with self._lock:
            p["araddr"].value = address
            await self._offer("ar")
            await self._take("r")
            return int(p["rdata"].value), int(p["rresp"].value)
