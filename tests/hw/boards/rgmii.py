"""A PHY on RGMII: cocotbext-eth's models, with what they lack of a PHY."""

from collections import deque
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer
from cocotbext.eth import RgmiiSink, RgmiiSource

UP, DOWN = 0b1101, 0b0000
"""What a PHY says between frames: 1,000 Mb/s and full duplex, or that there is no link."""

PERIOD_NS = 8


class _DataPins:
    """The pins of received data, as `RgmiiSource` drives them; between frames the status."""

    def __init__(self, pins: Any):
        self._pins = pins
        self.source: RgmiiSource | None = None
        self._status = DOWN

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pins, name)

    def __len__(self) -> int:
        return len(self._pins)

    @property
    def value(self) -> Any:
        return self._pins.value

    @value.setter
    def value(self, value: int) -> None:
        busy = self.source is not None and self.source.active
        self._pins.value = value if busy else self._status

    def say(self, status: int) -> None:
        self._status = status
        if self.source is None or not self.source.active:
            self._pins.value = status


class Phy:
    """What is on the other side of the pins; without clock and link at first.

    source: sends frames to the FPGA. sink: has those that the FPGA sends.
    """

    def __init__(self, dut: Any):
        self._dut = dut
        dut.rgmii__rx_clk.value = 0
        self._pins = _DataPins(dut.rgmii__rx_data)
        self.source = RgmiiSource(self._pins, dut.rgmii__rx_ctl, dut.rgmii__rx_clk)
        self._pins.source = self.source
        self.sink = RgmiiSink(dut.rgmii__tx_data, dut.rgmii__tx_ctl, dut.rgmii__tx_clk)
        for model in (self.source, self.sink):
            model.log.setLevel("ERROR")
        self._clock: Clock | None = None

    def run_clock(self, period_ns: float = PERIOD_NS) -> None:
        """Starts the clock, or goes on with it."""
        self.stop_clock()
        self._clock = Clock(self._dut.rgmii__rx_clk, period_ns, unit="ns")
        self._clock.start()

    def stop_clock(self) -> None:
        """Stops the clock where it is."""
        if self._clock is not None:
            self._clock.stop()
            self._clock = None

    def say(self, status: int) -> None:
        """What the PHY says between frames from now on."""
        self._pins.say(status)

    def cut_off(self) -> None:
        """The wire is pulled: what is being received ends, and what was to come does not."""
        self.source.clear()
        self.source.assert_reset()


class FrameSource:
    """The device's side that sends: a frame has no gap, and waits as long as it must."""

    def __init__(self, dut: Any):
        self._dut = dut
        self._frames: deque[bytes] = deque()
        dut.tx__tvalid.value = 0
        dut.tx__tuser.value = 0
        cocotb.start_soon(self._run())

    def put(self, frame: bytes) -> None:
        self._frames.append(frame)

    @property
    def is_empty(self) -> bool:
        return not self._frames

    async def _run(self) -> None:
        dut = self._dut
        while True:
            if not self._frames:
                dut.tx__tvalid.value = 0
                await RisingEdge(dut.clk)
                continue
            frame = self._frames[0]
            for at in range(0, len(frame), 8):
                part = frame[at : at + 8]
                dut.tx__tvalid.value = 1
                dut.tx__tdata.value = int.from_bytes(part, "little")
                dut.tx__tkeep.value = (1 << len(part)) - 1
                dut.tx__tlast.value = int(at + 8 >= len(frame))
                await RisingEdge(dut.clk)
                while not dut.tx__tready.value:
                    await RisingEdge(dut.clk)
            self._frames.popleft()


class FrameSink:
    """The device's side that receives: always ready. `frames`: with whether each is bad."""

    def __init__(self, dut: Any):
        self._dut = dut
        self.frames: deque[tuple[bytes, bool]] = deque()
        self.part = b""
        dut.rx__tready.value = 1
        cocotb.start_soon(self._run())

    async def take(self) -> tuple[bytes, bool]:
        while not self.frames:
            await RisingEdge(self._dut.clk)
        return self.frames.popleft()

    async def _run(self) -> None:
        dut = self._dut
        while True:
            await RisingEdge(dut.clk)
            if not dut.rx__tvalid.value:
                continue
            keep = int(dut.rx__tkeep.value)
            octets = keep.bit_count()
            assert octets and keep == (1 << octets) - 1
            self.part += int(dut.rx__tdata.value).to_bytes(8, "little")[:octets]
            if dut.rx__tlast.value:
                self.frames.append((self.part, bool(dut.rx__tuser.value)))
                self.part = b""
            else:
                assert octets == 8 and not dut.rx__tuser.value


async def start(dut: Any, period_ns: float) -> tuple[Phy, FrameSource, FrameSink]:
    """Starts `sync`, and returns what is on both sides; the PHY is without clock and link."""
    phy, source, sink = Phy(dut), FrameSource(dut), FrameSink(dut)
    dut.rst.value = 1
    Clock(dut.clk, period_ns, unit="ns").start()
    await Timer(10 * period_ns, unit="ns")
    dut.rst.value = 0
    await RisingEdge(dut.clk)
    return phy, source, sink


async def until_up(dut: Any, level: int = 1) -> None:
    """Waits for the link, or until it is lost."""
    while int(dut.up.value) != level:
        await RisingEdge(dut.clk)
