"""At two pins, a host opens the device, and reaches registers, memory, LLP and interrupt."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.hostlink.serial_rnic import RETRY_SECONDS, SerialRnic
from stagecoach.host_driver import registers
from stagecoach.host_driver.registers import CommandOpcode
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.hostlink import EVENTS, VERSION, WINDOW, Kind
from stagecoach.hw.interface.queue_entries import EVENT_ENTRY, EVENT_ENTRY_OCTETS, offset_of
from stagecoach.sim.cosim.streams import seeded_random
from tests.hostlink.pins import CLOCK_HZ, DIVISOR, Host
from tests.support.runner import run_cocotb

pytestmark = pytest.mark.slow

RETRY_CYCLES = int(RETRY_SECONDS * CLOCK_HZ)
CONFIG = RnicConfig(qps=2, cqs=2, stags=16, counters=False, max_burst_beats=8)
RING = 0x1234_5000
"""Where the event queue is in host memory."""


def test_serial_rnic():
    run_cocotb(SerialRnic(CONFIG, CLOCK_HZ, CLOCK_HZ // DIVISOR), __name__)


def test_a_rate_that_the_clock_does_not_make_is_refused():
    with pytest.raises(ValueError, match="allowed: rates that are, to 2%, the clock by a whole"):
        SerialRnic(CONFIG, CLOCK_HZ, CLOCK_HZ // 2)


class Device(Host):
    """The host of an RNIC."""

    def __init__(self, dut):
        super().__init__(dut, dut.rx, dut.tx)

    async def command(self, opcode: CommandOpcode) -> None:
        await self.write(registers.COMMAND, opcode=opcode)
        assert await self.read(registers.COMMAND_STATUS) == {"busy": 0, "invalid": 0}

    async def raise_event(self) -> None:
        """A shared receive ring without an entry, of which a limit tells at once."""
        await self.write(registers.CQ_NUMBER, cq=CONFIG.cqs)
        await self.write(registers.CQ_BASE_LOW, value=RING)
        await self.write(registers.CQ_SIZE, log2=4)
        await self.command(CommandOpcode.CQ_ENABLE)
        await self.write(registers.QP_NUMBER, qp=1)
        await self.write(registers.QP_RINGS, send_log2=0, receive_log2=4)
        await self.command(CommandOpcode.SRQ_CREATE)
        await self.write(registers.INTERRUPT_ENABLE, event=1)
        await self.write(registers.CQ_DOORBELL, cq=CONFIG.cqs, arm=1)
        await self.write(registers.SRQ_LIMIT, limit=1, producer=0)
        await self.command(CommandOpcode.SRQ_LIMIT)


async def opened(dut) -> Device:
    host = Device(dut)
    await host.start()
    await host.open(seeded_random().getrandbits(32))
    return host


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_a_host_reads_and_writes_registers(dut):
    host = Device(dut)
    await host.start()
    await ClockCycles(dut.clk, RETRY_CYCLES)
    assert dut.tx.value == 1 and not host.heard(), "nobody has asked yet"
    hello = await host.open(0x1234_5678)
    fields = bytes([VERSION, EVENTS, WINDOW, 0]) + CLOCK_HZ.to_bytes(4, "little")
    assert hello == 0x1234_5678.to_bytes(4, "little") + fields
    assert (await host.read(registers.ID))["magic"] == registers.ID.constant
    assert await host.read(registers.QUEUES) == {"qps": CONFIG.qps, "cqs": CONFIG.cqs}
    for value in (1, 0):
        await host.write(registers.INTERRUPT_ENABLE, completion=value, event=1)
        assert await host.read(registers.INTERRUPT_ENABLE) == {"completion": value, "event": 1}


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_an_event_is_in_host_memory_before_its_interrupt(dut):
    host = await opened(dut)
    await host.raise_event()
    await host.until(lambda: host.payloads(Kind.INTERRUPT))
    assert host.messages.pop() == (Kind.INTERRUPT, bytes([1]))
    octets = b""
    for payload in host.payloads(Kind.MEMORY_WRITE):
        assert int.from_bytes(payload[:8], "little") == RING + len(octets)
        words = [payload[at : at + 9] for at in range(8, len(payload), 9)]
        assert {word[0] for word in words} == {0xFF}, "a word is not written as a whole"
        octets += b"".join(word[1:] for word in words)
    assert len(octets) == EVENT_ENTRY_OCTETS
    assert octets[offset_of(EVENT_ENTRY, "cause")] == Cause.SRQ_LIMIT_REACHED
    await host.write(registers.INTERRUPT_STATUS, event=1)
    await host.until(lambda: host.payloads(Kind.INTERRUPT))
    assert host.payloads(Kind.INTERRUPT) == [bytes([0])]


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_the_device_takes_what_the_llp_tells(dut):
    host = await opened(dut)
    for connection in range(CONFIG.qps):
        event = connection.to_bytes(2, "little") + bytes([0]) + bytes(4)
        host.endpoint.send(Kind.LLP_EVENT, event)
    await host.until(lambda: bytes([CONFIG.qps]) in host.payloads(Kind.LLP_EVENTS_TAKEN))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_what_is_not_acknowledged_comes_again(dut):
    host = await opened(dut)
    host.endpoint.send(Kind.REGISTER_READ, bytes(2))
    await host.until(lambda: host.messages)
    host.silent = True
    counters = host.endpoint.counters
    await host.until(lambda: counters.out_of_order)
    assert len(host.messages) == 1


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_the_device_begins_anew_with_a_session(dut):
    host = await opened(dut)
    await host.write(registers.INTERRUPT_ENABLE, completion=1, event=1)
    await host.open(0xABCD)
    assert await host.read(registers.INTERRUPT_ENABLE) == {"completion": 0, "event": 0}
    # The same session: its OPEN was lost on the way, or HELLO was.
    await host.write(registers.INTERRUPT_ENABLE, completion=1, event=0)
    endpoint = host.endpoint
    await host.open(0xABCD)
    host.endpoint = endpoint
    assert await host.read(registers.INTERRUPT_ENABLE) == {"completion": 1, "event": 0}
