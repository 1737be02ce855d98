"""The register block keeps, shows and hands over what the description says, and nothing else."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout

from stagecoach.gateware.registers.block import ADDRESS_BITS, RegisterBlock, register_layout
from stagecoach.hw.interface.registers import MEMORY, NETWORK, RNIC, Register, registers
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    seeded_random,
    start_clock_and_reset,
)
from tests.registers.axi_lite import OKAY, SLVERR, RegisterMaster
from tests.support.runner import parameter, run_cocotb

SOURCES = {"rnic": RNIC, "network": NETWORK, "memory": MEMORY}
ALL = registers(SOURCES[parameter("SOURCE", "rnic")])
MESSAGES = [r for r in ALL if any(f.message for f in r.fields)]
STICKY = [r for r in ALL if any(f.clear_on_one for f in r.fields)]
DRIVEN = [r for r in ALL if any(f.driven for f in r.fields) and r not in STICKY]
STORED = [
    r for r in ALL if any(f.writable for f in r.fields) and r not in MESSAGES and r not in STICKY
]
CONSTANTS = [r for r in ALL if r not in MESSAGES + STICKY + DRIVEN + STORED]


@pytest.mark.parametrize("pauses", ["0", "1"])
@pytest.mark.parametrize("source", SOURCES)
def test_register_block(source, pauses):
    parameters = {"SOURCE": source, "PAUSES": pauses}
    run_cocotb(RegisterBlock(SOURCES[source]), __name__, parameters=parameters)


@cocotb.test(timeout_time=1, timeout_unit="us")
async def check_every_kind_of_register_is_there(dut):
    for kind in (MESSAGES, STICKY, DRIVEN, STORED, CONSTANTS):
        assert kind


def mask(register: Register) -> int:
    """The bits of a register that belong to a field."""
    return sum(((1 << field.width) - 1) << field.low for field in register.fields)


def reset_word(register: Register) -> int:
    """What a register has before anything is written."""
    return sum(field.reset << field.low for field in register.fields)


def port(dut: Any, register: Register, ending: str = "") -> Any:
    return getattr(dut, register.name.lower() + ending)


async def begin(dut: Any) -> tuple[RegisterMaster, random.Random, dict[str, StreamSink]]:
    rng = seeded_random()
    sinks = {}
    for register in MESSAGES:
        name = register.name.lower()
        sinks[register.name] = StreamSink(
            dut, name, register_layout(register), rng=rng, pattern="random"
        )
        StreamMonitor(dut, name)
    for register in STICKY:
        port(dut, register, "_set").value = 0
    for register in DRIVEN:
        port(dut, register).value = 0
    master = RegisterMaster(dut, rng, pauses=parameter("PAUSES") == "1")
    await start_clock_and_reset(dut)
    return master, rng, sinks


@cocotb.test(timeout_time=200, timeout_unit="us")
async def check_constants_are_read_only(dut):
    master, _, _ = await begin(dut)
    for register in CONSTANTS:
        expected = reset_word(register)
        assert await master.read(register.address) == (expected, OKAY)
        assert await master.write(register.address, 0xFFFFFFFF) == SLVERR
        assert await master.read(register.address) == (expected, OKAY)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def check_driven_registers_show_what_the_device_says(dut):
    master, rng, _ = await begin(dut)
    words = {}
    for register in DRIVEN:
        words[register.name] = rng.getrandbits(32) & mask(register)
        port(dut, register).value = words[register.name]
    for register in DRIVEN:
        assert await master.read(register.address) == (words[register.name], OKAY), register.name
        assert await master.write(register.address, rng.getrandbits(32)) == SLVERR
        assert await master.read(register.address) == (words[register.name], OKAY), register.name


@cocotb.test(timeout_time=500, timeout_unit="us")
async def check_stored_registers_keep_what_was_written(dut):
    master, rng, sinks = await begin(dut)
    words = {}
    for register in STORED:
        found = await master.read(register.address)
        assert found == (reset_word(register), OKAY), register.name
        words[register.name] = rng.getrandbits(32)
        assert await master.write(register.address, words[register.name]) == OKAY, register.name
    for register in STORED:
        kept = words[register.name] & mask(register)
        value, response = await master.read(register.address)
        assert response == OKAY
        # Bits outside the fields mean nothing.
        assert value & mask(register) == kept, register.name
        assert int(port(dut, register).value) & mask(register) == kept, register.name
    assert not any(len(sink) for sink in sinks.values())


@cocotb.test(timeout_time=500, timeout_unit="us")
async def check_an_address_without_register_is_an_error_and_changes_nothing(dut):
    master, _, sinks = await begin(dut)
    known = {register.address for register in ALL}
    addresses = [*range(0, max(known) + 0x40, 4), 0x400, 0x800, (1 << ADDRESS_BITS) - 4]
    for address in (address for address in addresses if address not in known):
        assert await master.write(address, 0xFFFFFFFF) == SLVERR, hex(address)
        _, response = await master.read(address)
        assert response == SLVERR, hex(address)
    for register in STORED:
        found = await master.read(register.address)
        assert found == (reset_word(register), OKAY), register.name
    assert not any(len(sink) for sink in sinks.values())


@cocotb.test(timeout_time=200, timeout_unit="us")
async def check_a_write_of_a_part_of_a_register_is_an_error_and_changes_nothing(dut):
    master, _, sinks = await begin(dut)
    for octets in (1, 2, 3):
        assert await master.write(STORED[0].address, 0xFFFFFFFF, octets) == SLVERR
        assert await master.write(MESSAGES[0].address, 0xFFFFFFFF, octets) == SLVERR
    assert await master.read(STORED[0].address) == (reset_word(STORED[0]), OKAY)
    assert not any(len(sink) for sink in sinks.values())


@cocotb.test(timeout_time=500, timeout_unit="us")
async def check_messages_are_handed_over_once_each_and_in_order(dut):
    master, rng, sinks = await begin(dut)
    sent: dict[str, list[int]] = {register.name: [] for register in MESSAGES}
    for _ in range(60):
        register = rng.choice(MESSAGES)
        word = rng.getrandbits(32)
        assert await master.write(register.address, word) == OKAY
        sent[register.name].append(word)
    await ClockCycles(dut.clk, 20)
    for register in MESSAGES:
        expected = [
            {f.name: word >> f.low & ((1 << f.width) - 1) for f in register.fields}
            for word in sent[register.name]
        ]
        assert sinks[register.name].take_all() == expected, register.name
        # Nothing can be read from a message register.
        _, response = await master.read(register.address)
        assert response == SLVERR, register.name


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_the_response_of_a_message_waits_until_it_is_taken(dut):
    master, _, sinks = await begin(dut)
    register = MESSAGES[0]
    sink = sinks[register.name]
    sink.paused = True
    await ClockCycles(dut.clk, 5)
    write = cocotb.start_soon(master.write(register.address, 0x12345678))
    await ClockCycles(dut.clk, 60)
    assert not write.done()
    # Reading goes on meanwhile.
    expected = (reset_word(CONSTANTS[0]), OKAY)
    assert await with_timeout(master.read(CONSTANTS[0].address), 2, "us") == expected
    sink.paused = False
    assert await write == OKAY
    assert len(sink) == 1


@cocotb.test(timeout_time=200, timeout_unit="us")
async def check_sticky_bits_stay_until_cleared_and_a_new_pulse_is_not_lost(dut):
    master, _, _ = await begin(dut)
    (register,) = STICKY
    pulses = port(dut, register, "_set")

    async def pulse(bits: int, cycles: int = 1) -> None:
        pulses.value = bits
        await ClockCycles(dut.clk, cycles)
        pulses.value = 0
        await RisingEdge(dut.clk)

    assert await master.read(register.address) == (0, OKAY)
    await pulse(1)
    assert await master.read(register.address) == (1, OKAY)
    await pulse(2)
    assert await master.read(register.address) == (3, OKAY)
    assert await master.write(register.address, 0) == OKAY
    assert await master.read(register.address) == (3, OKAY)
    assert await master.write(register.address, 1) == OKAY
    assert await master.read(register.address) == (2, OKAY)
    assert await master.write(register.address, 0xFFFFFFFF) == OKAY
    assert await master.read(register.address) == (0, OKAY)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def check_a_pulse_in_the_very_cycle_of_its_clearing_wins(dut):
    master, _, _ = await begin(dut)
    (register,) = STICKY
    pulses, bits = port(dut, register, "_set"), port(dut, register)

    async def watch() -> None:
        before = 0
        while True:
            await RisingEdge(dut.clk)
            assert not before & ~int(bits.value), "a pulse was lost"
            before = int(pulses.value)

    cocotb.start_soon(watch())
    for delay in range(16):
        write = cocotb.start_soon(master.write(register.address, 3))
        await ClockCycles(dut.clk, delay + 1)
        pulses.value = 2
        await RisingEdge(dut.clk)
        pulses.value = 0
        assert await write == OKAY
        await master.write(register.address, 3)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_read_strobe_names_the_register_once(dut):
    master, _, _ = await begin(dut)
    seen = []

    async def watch() -> None:
        while True:
            await RisingEdge(dut.clk)
            if dut.read.value:
                seen.append(int(dut.read_address.value))

    cocotb.start_soon(watch())
    addresses = [register.address for register in DRIVEN + STORED]
    for address in addresses:
        await master.read(address)
    assert seen == addresses


@cocotb.test(timeout_time=500, timeout_unit="us")
async def check_reads_and_writes_at_once_do_not_disturb_each_other(dut):
    master, rng, _ = await begin(dut)
    constant = CONSTANTS[0]
    word = reset_word(constant)

    async def read_constants() -> None:
        for _ in range(40):
            assert await master.read(constant.address) == (word, OKAY)

    reading = cocotb.start_soon(read_constants())
    for _ in range(40):
        register = rng.choice(STORED)
        value = rng.getrandbits(32) & mask(register)
        assert await master.write(register.address, value) == OKAY
        assert int(port(dut, register).value) & mask(register) == value
    await reading
