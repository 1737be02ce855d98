"""What every host link does: it says what its device is, and hands own messages on."""

from typing import Any

import cocotb
import pytest

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.hostlink.link_core import FIELD_OCTETS, Dispatcher, LinkCore
from stagecoach.gateware.hostlink.octets import OCTET
from stagecoach.hw.interface.hostlink import VERSION, WINDOW, Kind
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.hostlink.faults import Faults
from tests.hostlink.flat_ports import until
from tests.hostlink.line import CLOCK_HZ, RETRY_CYCLES, Host
from tests.support.runner import parameter, run_cocotb

EVENTS, MEMORY_LOG2, IRQS = 5, 21, 2
DATA = Kind.BOARD_ACCESS
OTHER = 0x1F
"""A kind of message that the link leaves to who has it."""

PATTERNS = pytest.mark.parametrize("pattern", ["always", "random"])


@PATTERNS
def test_dispatcher(pattern: str) -> None:
    parameters = {"PATTERN": pattern}
    dispatcher = Dispatcher((Kind.READ_DATA, DATA))
    run_cocotb(dispatcher, __name__, test_filter="check_dispatcher", parameters=parameters)


@PATTERNS
def test_link_core(pattern: str) -> None:
    core = LinkCore(
        RnicConfig(),
        CLOCK_HZ,
        RETRY_CYCLES,
        events=EVENTS,
        memory_log2=MEMORY_LOG2,
        irqs=IRQS,
        kind=DATA,
        sources=1,
    )
    run_cocotb(core, __name__, test_filter="check_link", parameters={"PATTERN": pattern})


def message(octets: bytes) -> list[dict[str, int]]:
    return [{"octet": o, "last": int(i == len(octets) - 1)} for i, o in enumerate(octets)]


def octets_of(items: list[dict[str, int]]) -> bytes:
    return bytes(item["octet"] for item in items)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_dispatcher_hands_each_message_to_whom_it_is_for(dut: Any) -> None:
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    source = StreamSource(dut, "i", OCTET, rng=rng, pattern=pattern)
    sinks = [
        StreamSink(dut, f"data__{number}", OCTET, rng=rng, pattern=pattern) for number in range(2)
    ]
    dut.ready.value = 0
    await start_clock_and_reset(dut)
    for _ in range(60):
        kind = rng.choice([Kind.READ_DATA, DATA, OTHER])
        octets = rng.randbytes(rng.choice([1, 3, FIELD_OCTETS, FIELD_OCTETS + 4]))
        source.put_all(message(bytes([kind]) + octets))
        if kind != OTHER:
            found = await sinks[kind == DATA].get_until()
            assert octets_of(found) == octets
            continue
        await until(dut, lambda: dut.valid.value)
        fields = int(dut.fields.value).to_bytes(FIELD_OCTETS, "little")
        kept = octets[:FIELD_OCTETS]
        assert dut.kind.value == kind and fields[: len(kept)] == kept
        dut.ready.value = 1
        await cycles(dut, 1)
        dut.ready.value = 0
        await cycles(dut, 1)
        assert not dut.valid.value
    assert not any(len(sink) for sink in sinks)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_link_tells_what_it_is_and_carries_messages_of_others(dut: Any) -> None:
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    told: list[tuple[int, bytes]] = []
    host = Host(dut, rng, pattern, lambda *each: told.append(each), Faults(rng, 0, 0, 0))
    own = StreamSource(dut, "sources__0", OCTET, rng=rng, pattern=pattern)
    data = StreamSink(dut, "data", OCTET, rng=rng, pattern=pattern)
    StreamMonitor(dut, "data", OCTET)
    for name in ("message_ready", "passed", "irq"):
        getattr(dut, name).value = 0
    for name in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
        getattr(dut, f"memory__{name}").value = 0
    for name in ("awready", "wready", "bvalid", "arready", "rvalid"):
        getattr(dut, f"registers__{name}").value = 0
    await start_clock_and_reset(dut)
    hello = await host.open()
    fields = bytes([VERSION, EVENTS, WINDOW, MEMORY_LOG2]) + CLOCK_HZ.to_bytes(4, "little")
    assert hello[4:] == fields
    cocotb.start_soon(host.run())

    octets = rng.randbytes(40)
    host.send(DATA, octets)
    assert octets_of(await data.get_until()) == octets
    host.send(OTHER, octets[:4])
    await until(dut, lambda: dut.message_valid.value)
    assert dut.kind.value == OTHER
    assert int(dut.fields.value) & 0xFFFFFFFF == int.from_bytes(octets[:4], "little")
    dut.message_ready.value = 1

    answer = rng.randbytes(30)
    own.put_all(message(bytes([Kind.BOARD_ANSWER]) + answer))
    await until(dut, lambda: told)
    assert told.pop() == (Kind.BOARD_ANSWER, answer)
    for levels in (1, 3, 2, 0):
        dut.irq.value = levels
        await until(dut, lambda: told)
        assert told.pop() == (Kind.INTERRUPT, bytes([levels]))
