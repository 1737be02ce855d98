"""What the driver writes reaches the engine, and what that says can be read."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ethernet.layouts import HOST_RING
from stagecoach.gateware.tcp.commands import NetworkOpcode
from stagecoach.gateware.tcp.layouts import (
    TRANSMIT_SETTINGS,
    ReceiveOperation,
    TransmitOperation,
    attachment_layout,
    receive_command,
    received_segment,
    release_layout,
    transmit_command,
)
from stagecoach.gateware.tcp.lookup import lookup_command, lookup_result
from stagecoach.gateware.tcp.network_registers import NetworkRegisters
from stagecoach.host_driver import network_registers as driver
from stagecoach.host_driver.registers import Register
from stagecoach.hw.interface.shared import network_digest
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.registers.axi_lite import OKAY, RegisterMaster
from tests.support.runner import parameter, run_cocotb

SIZES = {"2": (2, 576), "256": (256, 9000)}
"""Connections and MTU."""

WITH_ANSWERS = "256"
"""The device that can answer requests."""

WORD = 0xFFFFFFFF


@pytest.mark.parametrize("connections", SIZES)
def test_network_registers(connections: str) -> None:
    qps, mtu = SIZES[connections]
    config = RnicConfig(qps=qps, answers=connections == WITH_ANSWERS)
    parameters = {"CONNECTIONS": connections}
    run_cocotb(NetworkRegisters(config, mtu), __name__, parameters=parameters)


class Bench:
    """The driver on one side, the engine's ports on the other one."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.connections, self.mtu = SIZES[parameter("CONNECTIONS")]
        bits = (self.connections - 1).bit_length()
        self.rng = rng = seeded_random(parameter("CONNECTIONS"))
        self.sinks = {}
        for name, layout in {
            "receive_command": receive_command(bits),
            "transmit_command": transmit_command(bits),
            "lookup": lookup_command(bits),
            "placed": received_segment(bits),
            "release": release_layout(bits),
            "attachment": attachment_layout(bits),
        }.items():
            self.sinks[name] = StreamSink(dut, name, layout, rng=rng, pattern="random")
            StreamMonitor(dut, name, layout)
        self.done = StreamSource(dut, "lookup_done", lookup_result(bits))
        for name in (
            *("time", "begun", "begun_edge", "info_done", "info", "fence_busy", "value"),
            *(
                "consumer",
                "receive_idle",
                "transmit_idle",
                "interrupt",
                "dropped",
                "refused",
                "failed",
                "answered",
                "unanswered",
                "urgent",
            ),
        ):
            getattr(dut, name).value = 0
        self.master = RegisterMaster(dut, rng, pauses=False)

    async def read(self, register: Register) -> dict[str, int]:
        word, response = await self.master.read(register.address)
        assert response == OKAY
        return register.unpack(word)

    async def write(self, register: Register, **fields: int) -> None:
        assert await self.master.write(register.address, register.pack(**fields)) == OKAY

    async def pulse(self, name: str, cycles: int = 1) -> None:
        getattr(self.dut, name).value = 1
        await ClockCycles(self.dut.clk, cycles)
        getattr(self.dut, name).value = 0
        await RisingEdge(self.dut.clk)

    async def command(self, opcode: NetworkOpcode) -> None:
        await self.write(driver.NETWORK_COMMAND, opcode=opcode.value)

    async def status(self) -> dict[str, int]:
        return await self.read(driver.NETWORK_COMMAND_STATUS)


async def begin(dut: Any) -> Bench:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    return bench


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_the_device_says_what_it_is(dut: Any) -> None:
    bench = await begin(dut)
    assert (await bench.read(driver.NETWORK_ID))["magic"] == int.from_bytes(b"iTCP", "little")
    assert (await bench.read(driver.NETWORK_INTERFACE))["digest"] == network_digest()
    sizes = await bench.read(driver.NETWORK_SIZES)
    assert sizes == {"connections": bench.connections, "mtu": bench.mtu}
    dut.time.value = 0xFEDCBA98
    assert (await bench.read(driver.NETWORK_TIME))["value"] == 0xFEDCBA98


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_settings_begin_as_described_and_change(dut: Any) -> None:
    bench = await begin(dut)
    registers = {
        "rto_minimum": (driver.NETWORK_RTO_MINIMUM, 200_000),
        "rto_maximum": (driver.NETWORK_RTO_MAXIMUM, 60_000_000),
        "r2": (driver.NETWORK_R2, 100_000_000),
        "delayed_ack": (driver.NETWORK_DELAYED_ACK, 40_000),
    }
    settings = unpack(TRANSMIT_SETTINGS, dut.settings.value)
    assert settings == {name: reset for name, (_, reset) in registers.items()}
    values = {name: bench.rng.getrandbits(32) for name in registers}
    for name, (register, _) in registers.items():
        await bench.write(register, value=values[name])
    assert unpack(TRANSMIT_SETTINGS, dut.settings.value) == values


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_address_and_secret_have_their_octets_in_order(dut: Any) -> None:
    bench = await begin(dut)
    mac = bytes.fromhex("020406080a0c")
    await bench.write(driver.NETWORK_MAC_LOW, value=int.from_bytes(mac[:4], "little"))
    await bench.write(driver.NETWORK_MAC_HIGH, value=int.from_bytes(mac[4:], "little"))
    assert int(dut.mac.value).to_bytes(6, "little") == mac
    secret = bench.rng.getrandbits(127)
    for number in range(4):
        register = getattr(driver, f"NETWORK_SECRET_{number}")
        await bench.write(register, value=secret >> 32 * number & WORD)
    assert int(dut.secret.value) == secret


@cocotb.test(timeout_time=200, timeout_unit="us")
async def check_rings_reach_the_engine_and_their_state_the_driver(dut: Any) -> None:
    bench = await begin(dut)
    rng = bench.rng
    sizes = {name: rng.randrange(16) for name in ("queue", "slots", "frames")}
    fields = {f"{name}_log2": size for name, size in sizes.items()}
    await bench.write(driver.NETWORK_RINGS, **fields)
    for name, size in sizes.items():
        base = rng.getrandbits(64)
        await bench.write(getattr(driver, f"NETWORK_{name.upper()}_LOW"), value=base & WORD)
        await bench.write(getattr(driver, f"NETWORK_{name.upper()}_HIGH"), value=base >> 32)
        assert unpack(HOST_RING, getattr(dut, name).value) == {"base": base, "log2": size}
    await bench.write(driver.NETWORK_CONSUMERS, queue_consumer=0x1234, slot_consumer=0xFEDC)
    await bench.write(driver.NETWORK_PRODUCER, producer=0xABCD)
    indices = [dut.queue_consumer, dut.slot_consumer, dut.producer]
    assert [int(index.value) for index in indices] == [0x1234, 0xFEDC, 0xABCD]
    dut.consumer.value = 0x9876
    assert (await bench.read(driver.NETWORK_SENT))["consumer"] == 0x9876
    for name in ("receive", "transmit"):
        other = dut.transmit_enable if name == "receive" else dut.receive_enable
        assert not getattr(dut, f"{name}_enable").value
        await bench.write(driver.NETWORK_ENABLE, **{name: 1})
        assert getattr(dut, f"{name}_enable").value and not other.value
        await bench.write(driver.NETWORK_ENABLE)
        getattr(dut, f"{name}_idle").value = 1
        idle = await bench.read(driver.NETWORK_STATUS)
        assert idle.pop("answers") == (parameter("CONNECTIONS") == WITH_ANSWERS)
        assert idle == {f"{one}_idle": int(one == name) for one in ("receive", "transmit")}
        getattr(dut, f"{name}_idle").value = 0


@cocotb.test(timeout_time=200, timeout_unit="us")
async def check_answers_have_an_address_and_are_off_at_first(dut: Any) -> None:
    bench = await begin(dut)
    assert not dut.answer.value
    await bench.write(driver.NETWORK_ADDRESS, value=0xC0000202)
    await bench.write(driver.NETWORK_ENABLE, receive=1, transmit=1, answer=1)
    assert int(dut.address.value) == 0xC0000202
    assert dut.answer.value and dut.receive_enable.value and dut.transmit_enable.value
    await bench.pulse("answered", 7)
    await bench.pulse("unanswered", 3)
    assert (await bench.read(driver.NETWORK_ANSWERED))["value"] == 7
    assert (await bench.read(driver.NETWORK_UNANSWERED))["value"] == 3
    # A driver that sleeps has written nothing.
    await ClockCycles(dut.clk, 500)
    assert dut.answer.value
    await bench.write(driver.NETWORK_ENABLE, receive=1)
    assert not dut.answer.value


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_what_goes_wrong_is_counted_and_counts_wrap(dut: Any) -> None:
    bench = await begin(dut)
    await bench.pulse("dropped", 3)
    await bench.pulse("refused", (1 << 16) + 5)
    await bench.pulse("failed", 2)
    await bench.pulse("urgent", 4)
    assert (await bench.read(driver.NETWORK_FRAMES_DROPPED))["value"] == 3
    assert (await bench.read(driver.NETWORK_URGENT))["value"] == 4
    assert await bench.read(driver.NETWORK_FAULTS) == {"refused": 5, "failed": 2}
    await bench.write(driver.NETWORK_FRAME_FATE, fate=19)
    assert int(dut.fate_read.value) == 19
    dut.value.value = 0x13579BDF
    assert (await bench.read(driver.NETWORK_FRAMES_SEEN))["value"] == 0x13579BDF


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_the_interrupt_is_that_of_enabled_bits_until_they_are_cleared(dut: Any) -> None:
    bench = await begin(dut)
    for pulse, bit in (("interrupt", "queue"), ("failed", "failed")):
        await bench.pulse(pulse)
        found = await bench.read(driver.NETWORK_INTERRUPT_STATUS)
        assert found == {one: int(one == bit) for one in ("queue", "failed")}
        assert not dut.irq.value
        for enabled in ("queue", "failed"):
            await bench.write(driver.NETWORK_INTERRUPT_ENABLE, **{enabled: 1})
            await ClockCycles(dut.clk, 2)
            assert bool(dut.irq.value) == (enabled == bit)
        await bench.write(driver.NETWORK_INTERRUPT_ENABLE, queue=1, failed=1)
        await bench.write(driver.NETWORK_INTERRUPT_STATUS, **{bit: 1})
        await ClockCycles(dut.clk, 2)
        assert not dut.irq.value
        await bench.write(driver.NETWORK_INTERRUPT_ENABLE)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def check_a_command_takes_its_arguments_from_registers(dut: Any) -> None:
    """One with each neighbour; tests/tcp/test_commands.py has all of them."""
    bench = await begin(dut)
    last = bench.connections - 1
    await bench.write(driver.TCP_CONNECTION, connection=last, lane=last)
    await bench.write(driver.TCP_SEGMENT_SIZE, value=bench.mtu - 40)
    await bench.write(driver.TCP_RX_RING_LOW, value=0x12340000)
    await bench.write(driver.TCP_RX_RING_HIGH, value=0xABCD)
    await bench.write(driver.TCP_RECEIVE_NEXT, value=0x89ABCDEF)
    await bench.write(driver.TCP_LOCAL, value=0x0A000001)
    await bench.write(driver.TCP_REMOTE, value=0x0A000002)
    await bench.write(driver.TCP_PORTS, local=1000, remote=2000)
    await bench.command(NetworkOpcode.ESTABLISH)
    received = await bench.sinks["receive_command"].get()
    assert received["operation"] == ReceiveOperation.BEGIN.value
    assert (received["connection"], received["ring"]) == (last, 0xABCD12340000)
    assert (await bench.status())["busy"] == 1
    dut.begun_edge.value = 0x76543210
    await bench.pulse("begun")
    sent = await bench.sinks["transmit_command"].get()
    assert (sent["operation"], sent["emss"]) == (TransmitOperation.BEGIN.value, bench.mtu - 40)
    assert (sent["edge"], sent["announced"]) == (0x76543210, 0)
    ends = (await bench.sinks["lookup"].get())["key"]
    assert ends == {"local": 0x0A000001, "remote": 0x0A000002} | {
        "local_port": 1000,
        "remote_port": 2000,
    }
    bench.done.put({"found": 0, "connection": last})
    await ClockCycles(dut.clk, 5)
    assert await bench.status() == {"busy": 0, "invalid": 1}

    await bench.command(NetworkOpcode.ATTACH)
    assert (await bench.sinks["attachment"].get())["base"] == 0x89ABCDEF
    assert (await bench.sinks["transmit_command"].get())["operation"] == (
        TransmitOperation.ATTACH.value
    )
    await bench.write(driver.TCP_OCTETS, value=77)
    await bench.command(NetworkOpcode.RELEASE)
    assert (await bench.sinks["release"].get())["value"] == 77
    await bench.command(NetworkOpcode.SEGMENT)
    assert (await bench.sinks["placed"].get())["segment"]["payload"] == 77
    await ClockCycles(dut.clk, 5)
    assert await bench.status() == {"busy": 0, "invalid": 0}


@cocotb.test(timeout_time=200, timeout_unit="us")
async def check_a_command_waits_for_the_one_before_and_no_read_does(dut: Any) -> None:
    bench = await begin(dut)
    bench.sinks["transmit_command"].paused = True
    await bench.command(NetworkOpcode.CLOSE)
    second = cocotb.start_soon(bench.command(NetworkOpcode.ABORT))
    await ClockCycles(dut.clk, 50)
    assert not second.done()
    assert await bench.status() == {"busy": 1, "invalid": 0}
    bench.sinks["transmit_command"].paused = False
    await second
    operations = [(await bench.sinks["transmit_command"].get())["operation"] for _ in range(2)]
    assert operations == [TransmitOperation.FINISH.value, TransmitOperation.ABORT.value]


@cocotb.test(timeout_time=200, timeout_unit="us")
async def check_headers_and_words_of_a_connection(dut: Any) -> None:
    bench = await begin(dut)
    seen = []

    async def watch() -> None:
        while True:
            await RisingEdge(dut.clk)
            if dut.header_write.value:
                names = ("header_connection", "header_row", "header_word")
                seen.append(tuple(int(getattr(dut, name).value) for name in names))

    cocotb.start_soon(watch())
    await bench.write(driver.TCP_CONNECTION, connection=1)
    await bench.write(driver.TCP_HEADER_ROW, row=7)
    await bench.write(driver.TCP_HEADER_LOW, value=0x44332211)
    await bench.write(driver.TCP_HEADER_HIGH, value=0x88776655)
    await bench.command(NetworkOpcode.HEADER)
    await ClockCycles(dut.clk, 5)
    assert seen == [(1, 7, 0x8877665544332211)]
    await bench.write(driver.TCP_HEADER_ROW, row=2)
    await bench.command(NetworkOpcode.HEADER)
    await ClockCycles(dut.clk, 5)
    assert len(seen) == 1 and (await bench.status())["invalid"] == 1

    await bench.command(NetworkOpcode.INFO)
    await bench.sinks["transmit_command"].get()
    assert (await bench.status())["busy"] == 1
    await bench.pulse("info_done")
    assert (await bench.status())["busy"] == 0
    assert int(dut.info_read.value) == 1
    await bench.write(driver.TCP_INFO_WORD, word=13)
    assert int(dut.info_word.value) == 13
    dut.info.value = 0x2468ACE0
    assert (await bench.read(driver.TCP_INFO))["value"] == 0x2468ACE0
