"""Octets pass a UART whatever the phase of the line, and what is not an octet is dropped."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge, Timer

from stagecoach.gateware.hostlink.uart import UartReceiver, UartTransmitter, divisor_of
from stagecoach.sim.cosim.streams import (
    CLOCK_PERIOD_NS,
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb


@pytest.mark.parametrize("divisor", [4, 25])
def test_receiver(divisor):
    parameters = {"DIVISOR": str(divisor)}
    run_cocotb(UartReceiver(divisor), __name__, test_filter="receiver", parameters=parameters)


def test_transmitter():
    run_cocotb(UartTransmitter(4), __name__, test_filter="transmitter", parameters={"DIVISOR": "4"})


def test_divisor_is_checked():
    assert divisor_of(50e6, 2e6) == 25
    assert divisor_of(50e6, 115200) == 434
    for clock, baud in ((50e6, 20e6), (50e6, 3.2e6)):
        with pytest.raises(
            ValueError, match="allowed: rates that are, to 2%, the clock by a whole"
        ):
            divisor_of(clock, baud)
    for part in (UartReceiver, UartTransmitter):
        with pytest.raises(ValueError, match="divisor is 3; allowed: 4 and more"):
            part(3)


async def send(dut, octet: int, bit_ns: float, stop: int = 1) -> None:
    for level in (0, *(octet >> i & 1 for i in range(8)), stop):
        dut.rx.value = level
        await Timer(round(bit_ns * 1000), "ps")
    dut.rx.value = 1


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_receiver(dut):
    rng = seeded_random(parameter("DIVISOR"))
    divisor = int(parameter("DIVISOR"))
    sink = StreamSink(dut, "o", rng=rng, pattern="random")
    StreamMonitor(dut, "o")
    dut.rx.value = 1
    await start_clock_and_reset(dut)
    sent = [0x00, 0xFF, 0x55, *rng.randbytes(60)]
    # At four samples a bit there is no room for another clock, with more there is.
    errors = (1.0,) if divisor < 8 else (0.97, 1.0, 1.03)
    for octet in sent:
        await send(dut, octet, divisor * CLOCK_PERIOD_NS * rng.choice(errors))
        if rng.random() < 0.5:
            await Timer(rng.randrange(1000 * CLOCK_PERIOD_NS * divisor), "ps")
    await ClockCycles(dut.clk, 40)
    assert sink.take_all() == sent
    # A break is no octet, and the next one is found.
    await send(dut, 0x00, divisor * CLOCK_PERIOD_NS, stop=0)
    await Timer(3 * divisor * CLOCK_PERIOD_NS, "ns")
    await send(dut, 0xA5, divisor * CLOCK_PERIOD_NS)
    await ClockCycles(dut.clk, 40)
    assert sink.take_all() == [0xA5]
    # One octet waits for whoever takes it; those after it are lost, and it does not change.
    sink.paused = True
    await ClockCycles(dut.clk, 4)
    for octet in (1, 2, 3):
        await send(dut, octet, divisor * CLOCK_PERIOD_NS)
    await ClockCycles(dut.clk, 4 * divisor)
    sink.paused = False
    await ClockCycles(dut.clk, 20)
    assert sink.take_all() == [1]


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_transmitter(dut):
    rng = seeded_random()
    divisor = int(parameter("DIVISOR"))
    source = StreamSource(dut, "i", rng=rng, pattern="random")
    await start_clock_and_reset(dut)
    assert dut.tx.value == 1
    sent = [0x00, 0xFF, *rng.randbytes(40)]
    source.put_all(sent)
    for octet in sent:
        while dut.tx.value == 1:
            await RisingEdge(dut.clk)
        # The first cycle of the start bit; look at the middle of each.
        await ClockCycles(dut.clk, divisor // 2)
        levels = []
        for bit in range(10):
            if bit:
                await ClockCycles(dut.clk, divisor)
            levels.append(int(dut.tx.value))
        assert levels == [0, *(octet >> i & 1 for i in range(8)), 1]
