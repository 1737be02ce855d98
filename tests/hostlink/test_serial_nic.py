"""At its pins, a host opens a NIC, and reaches registers, board memory, interrupts and window."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.hostlink.serial_nic import WINDOW_ADDRESS, SerialNic
from stagecoach.host_driver import memory_registers, network_registers, registers
from stagecoach.hw.interface.hostlink import MAXIMUM_BEATS, VERSION, WINDOW, Kind
from stagecoach.hw.interface.network_entries import (
    FRAME_DESCRIPTOR,
    NETWORK_ENTRY_OCTETS,
)
from stagecoach.hw.interface.queue_entries import offset_of
from stagecoach.hw.interface.registers import NETWORK
from stagecoach.hw.interface.registers import registers as registers_of
from stagecoach.hw.interface.sizes import MTU
from stagecoach.sim.cosim.axi import AxiMemory
from stagecoach.sim.cosim.host_memory import HostMemory
from stagecoach.sim.cosim.streams import seeded_random
from tests.hostlink.pins import CLOCK_HZ, DIVISOR, Host
from tests.support.runner import run_cocotb
from tests.tcp.frames import ARP, MAC, PEER
from tests.tcp.wire import Wire
from tests.wishbone.slave import Answer, Slave

FAST = False  # a whole NIC

CONFIG = RnicConfig(
    qps=2, cqs=2, stags=16, prefetch_lanes=2, counters=False, max_burst_beats=8, answers=True
)
MEMORY_LOG2 = 17
WORD = 8

QUEUE, SLOTS, FRAMES, BUFFER = 0, 0x4000, 0x8000, 0x8800
"""Where the driver's rings are in the board's memory, and a frame that is sent."""

LOG2 = 2


@pytest.mark.slow
@pytest.mark.timeout(3600)  # the first run builds the simulator
def test_serial_nic() -> None:
    nic = SerialNic(CONFIG, CLOCK_HZ, CLOCK_HZ // DIVISOR, MEMORY_LOG2, has_controller=True)
    run_cocotb(nic, __name__, quick=True)


def test_the_window_is_after_the_registers_of_the_network() -> None:
    assert max(each.address for each in registers_of(NETWORK)) < WINDOW_ADDRESS
    assert memory_registers.MEMORY_ID.address == WINDOW_ADDRESS


class Board(HostMemory):
    """The board's memory, from address 0 on."""

    FIRST = 0


class Nic(Host):
    """The host of a NIC, its board's memory, its wire, and its memory's controller."""

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, dut.uart_rx, dut.uart_tx)
        rng = seeded_random()
        board = Board()
        self.stored = bytearray(1 << MEMORY_LOG2)
        assert board.map(self.stored) == 0
        self.memory = AxiMemory(dut, "memory", dut.clk, board)
        self.wire = Wire(dut, rng)
        self.controller = Slave(dut, "controller", 10.0)
        dut.tx__tready.value = 1

    async def begin(self) -> "Nic":
        self.rx.value = 1
        await self.controller.start()  # with the clock and reset of the device
        for port in (self.memory, self.wire):
            cocotb.start_soon(port.run())
        cocotb.start_soon(self._listen())
        self.hello = await self.open(0x1234_5678)
        return self

    async def board(self, at: int, words: int, data: bytes = b"") -> bytes:
        """Reads words of the board's memory, or writes them."""
        writes = b"".join(b"\xff" + data[n : n + WORD] for n in range(0, len(data), WORD))
        count = len(self.payloads(Kind.BOARD_ANSWER))
        self.endpoint.send(Kind.BOARD_ACCESS, at.to_bytes(8, "little") + bytes([words]) + writes)
        await self.until(lambda: len(self.payloads(Kind.BOARD_ANSWER)) > count)
        *found, response = self.payloads(Kind.BOARD_ANSWER)[-1]
        assert response == 0
        return bytes(found)

    async def open_rings(self) -> None:
        network = network_registers
        mac = int.from_bytes(MAC, "little")
        await self.write(network.NETWORK_MAC_LOW, value=mac & 0xFFFFFFFF)
        await self.write(network.NETWORK_MAC_HIGH, value=mac >> 32)
        await self.write(network.NETWORK_QUEUE_LOW, value=QUEUE)
        await self.write(network.NETWORK_SLOTS_LOW, value=SLOTS)
        await self.write(network.NETWORK_FRAMES_LOW, value=FRAMES)
        await self.write(network.NETWORK_RINGS, queue_log2=LOG2, slots_log2=LOG2, frames_log2=LOG2)
        await self.write(network.NETWORK_INTERRUPT_ENABLE, queue=1, failed=1)
        await self.write(network.NETWORK_ENABLE, receive=1, transmit=1)

    async def frame(self) -> bytes:
        """The next frame that leaves."""
        octets = b""
        for _ in range(20_000):
            await RisingEdge(self.dut.clk)
            if not self.dut.tx__tvalid.value:
                continue
            word = int(self.dut.tx__tdata.value).to_bytes(WORD, "little")
            octets += word[: int(self.dut.tx__tkeep.value).bit_count()]
            if self.dut.tx__tlast.value:
                return octets
        raise AssertionError("no frame")


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_registers_of_all_three_are_at_one_port(dut: Any) -> None:
    nic = await Nic(dut).begin()
    fields = bytes([VERSION, 0, WINDOW, MEMORY_LOG2]) + CLOCK_HZ.to_bytes(4, "little")
    assert nic.hello[4:] == fields
    assert (await nic.read(registers.ID))["magic"] == registers.ID.constant
    found = await nic.read(network_registers.NETWORK_ID)
    assert found["magic"] == network_registers.NETWORK_ID.constant
    assert await nic.read(network_registers.NETWORK_SIZES) == {"connections": 2, "mtu": MTU}
    assert (await nic.read(network_registers.NETWORK_STATUS))["answers"] == 1
    found = await nic.read(memory_registers.MEMORY_ID)
    assert found["magic"] == memory_registers.MEMORY_ID.constant
    first = (await nic.read(network_registers.NETWORK_TIME))["value"]
    assert first < (await nic.read(network_registers.NETWORK_TIME))["value"]


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_the_window_reaches_the_controller(dut: Any) -> None:
    nic = await Nic(dut).begin()
    nic.controller.answers += [Answer(), Answer(0xABCD_0123)]
    await nic.write(memory_registers.MEMORY_ADDRESS, word=5)
    await nic.write(memory_registers.MEMORY_WRITE, value=77)
    await nic.write(memory_registers.MEMORY_READ, start=1)
    assert await nic.read(memory_registers.MEMORY_STATUS) == {"busy": 0}
    assert (await nic.read(memory_registers.MEMORY_VALUE))["value"] == 0xABCD_0123
    assert nic.controller.asked == [(1, 5, 77), (0, 5, None)]
    assert not any((await nic.read(memory_registers.MEMORY_ERRORS)).values())


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_frames_of_the_driver_are_in_the_memory_of_the_board(dut: Any) -> None:
    nic = await Nic(dut).begin()
    data = bytes(range(64))
    assert await nic.board(0x100, 8, data) == b"" and nic.stored[0x100:0x140] == data
    assert await nic.board(0x108, 2) == data[8:24]
    await nic.open_rings()

    frame = PEER + MAC + ARP + bytes(range(46))
    await nic.board(BUFFER, WORD, frame.ljust(64, b"\0"))
    descriptor = bytearray(16)
    at = offset_of(FRAME_DESCRIPTOR, "address")
    descriptor[at : at + 8] = BUFFER.to_bytes(8, "little")
    at = offset_of(FRAME_DESCRIPTOR, "octets")
    descriptor[at : at + 2] = len(frame).to_bytes(2, "little")
    await nic.board(FRAMES, 2, bytes(descriptor))
    leaving = cocotb.start_soon(nic.frame())
    await nic.write(network_registers.NETWORK_PRODUCER, producer=1)
    assert await leaving == frame

    assert not nic.payloads(Kind.INTERRUPT)
    other = MAC + PEER + ARP + bytes(46)
    nic.wire.frames.append(other)
    await nic.until(lambda: nic.payloads(Kind.INTERRUPT))
    assert nic.payloads(Kind.INTERRUPT) == [bytes([2])]
    entry = await nic.board(QUEUE, NETWORK_ENTRY_OCTETS // WORD)
    assert entry[-1] & 1
    assert (await nic.board(SLOTS, 8))[: len(other)] == other
    # None of it goes to the host's memory.
    assert not nic.payloads(Kind.MEMORY_READ) and not nic.payloads(Kind.MEMORY_WRITE)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_a_session_resets_the_device_and_not_the_time(dut: Any) -> None:
    nic = await Nic(dut).begin()
    await nic.write(registers.INTERRUPT_ENABLE, completion=1, event=1)
    await nic.open_rings()
    before = (await nic.read(network_registers.NETWORK_TIME))["value"]
    restarts = 0

    async def count() -> None:
        nonlocal restarts
        while True:
            await RisingEdge(dut.clk)
            restarts += int(dut.restart.value)

    cocotb.start_soon(count())
    await nic.open(0xABCD)
    await ClockCycles(dut.clk, 10)
    assert restarts == 16
    assert await nic.read(registers.INTERRUPT_ENABLE) == {"completion": 0, "event": 0}
    status = await nic.read(network_registers.NETWORK_STATUS)
    assert status["receive_idle"] and status["transmit_idle"]
    assert (await nic.read(network_registers.NETWORK_TIME))["value"] > before


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def check_a_session_that_begins_in_the_middle_of_bursts_has_none_of_them(dut: Any) -> None:
    """A read of the host is answered after the new session began, and nobody has the answer."""
    nic = await Nic(dut).begin()
    rng = seeded_random()
    nic.stored[:] = rng.randbytes(len(nic.stored))
    late = 0x8000
    nic.memory.delay(range(late, late + 0x1000), 3_000)
    for nonce in range(4):
        kept = bytes(nic.stored)
        nic.endpoint.send(Kind.BOARD_ACCESS, late.to_bytes(8, "little") + bytes([MAXIMUM_BEATS]))
        await nic._say(nic.endpoint.output(0.0))
        while not dut.memory__arvalid.value:
            await RisingEdge(dut.clk)
        await ClockCycles(dut.clk, rng.randrange(500))
        assert not dut.memory__rvalid.value
        await nic.open(0xAB00 + nonce)
        at, data = 0x100 * (nonce + 1), rng.randbytes(64)
        assert await nic.board(at, 4) == kept[at : at + 32]
        assert await nic.board(at, 8, data) == b""
        assert await nic.board(at, 8) == data
        kept = kept[:at] + data + kept[at + 64 :]
        assert nic.stored == kept
