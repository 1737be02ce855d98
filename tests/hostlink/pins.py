"""A host at the two serial pins of a device in cocotb."""

from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, FallingEdge

from stagecoach.host_driver.hostlink.endpoint import Endpoint
from stagecoach.host_driver.hostlink.frames import Deframer, Frame
from stagecoach.host_driver.registers import Register
from stagecoach.hw.interface.hostlink import FLAG, VERSION, Kind
from stagecoach.sim.cosim.streams import start_clock_and_reset

DIVISOR = 4
CLOCK_HZ = 100_000

PATIENCE = 20_000
"""Cycles until something is missing: some hundred octets of the line."""


class Host:
    """Answers writes to host memory, and keeps what else it is told.

    rx, tx: the pins, seen from the device.
    """

    def __init__(self, dut: Any, rx: Any, tx: Any) -> None:
        self.dut, self.rx, self.tx = dut, rx, tx
        self.octets = bytearray()
        """What came, and was not looked at."""
        self.endpoint: Endpoint | None = None
        self.silent = False
        self.messages: list[tuple[int, bytes]] = []

    async def start(self) -> None:
        self.rx.value = 1
        await start_clock_and_reset(self.dut)
        cocotb.start_soon(self._listen())

    async def _listen(self) -> None:
        """Every octet that the device says."""
        while True:
            await FallingEdge(self.tx)
            await ClockCycles(self.dut.clk, DIVISOR // 2)
            octet = 0
            for bit in range(8):
                await ClockCycles(self.dut.clk, DIVISOR)
                octet |= int(self.tx.value) << bit
            await ClockCycles(self.dut.clk, DIVISOR)
            assert self.tx.value == 1, "no stop bit"
            self.octets.append(octet)

    async def _say(self, octets: bytes) -> None:
        for octet in octets:
            for level in (0, *(octet >> bit & 1 for bit in range(8)), 1):
                self.rx.value = level
                await ClockCycles(self.dut.clk, DIVISOR)

    def heard(self) -> bytes:
        octets = bytes(self.octets)
        self.octets.clear()
        return octets

    async def open(self, nonce: int) -> bytes:
        """Begins a session; returns HELLO."""
        payload = nonce.to_bytes(4, "little") + bytes([VERSION])
        await self._say(bytes([FLAG]) + Frame(Kind.OPEN, 0, 0, payload).pack())
        deframer = Deframer()
        for _ in range(100):
            await ClockCycles(self.dut.clk, 40)
            for frame in deframer.take(self.heard()):
                if frame and frame.kind == Kind.HELLO:
                    self.endpoint = Endpoint(1e9, 1e9)
                    return frame.payload
        raise AssertionError("no HELLO")

    async def until(self, done: Callable[[], object]) -> None:
        """Serves the line until something is so."""
        for _ in range(PATIENCE // 40):
            for kind, payload in self.endpoint.input(self.heard(), 0.0):
                self.messages.append((kind, payload))
                if kind == Kind.MEMORY_WRITE:
                    self.endpoint.send(Kind.WRITE_DONE, bytes(1))
            if done():
                return
            await self._say(b"" if self.silent else self.endpoint.output(0.0))
            await ClockCycles(self.dut.clk, 40)
        raise AssertionError(f"it did not come; there was {self.messages}")

    def payloads(self, wanted: Kind) -> list[bytes]:
        return [payload for kind, payload in self.messages if kind == wanted]

    async def access(self, kind: Kind, payload: bytes) -> int:
        count = len(self.payloads(Kind.REGISTER_DONE))
        self.endpoint.send(kind, payload)
        await self.until(lambda: len(self.payloads(Kind.REGISTER_DONE)) > count)
        done = self.payloads(Kind.REGISTER_DONE)[-1]
        assert done[0] == 0
        return int.from_bytes(done[1:], "little")

    async def read(self, register: Register) -> dict[str, int]:
        address = register.address.to_bytes(2, "little")
        return register.unpack(await self.access(Kind.REGISTER_READ, address))

    async def write(self, register: Register, **values: int) -> None:
        word = register.pack(**values).to_bytes(4, "little")
        await self.access(Kind.REGISTER_WRITE, register.address.to_bytes(2, "little") + word)
