"""The LLP port of cocotb tests: its latency, and a window that is shut."""

from typing import Any

import cocotb
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.ports import LlpSignature
from stagecoach.hw.interface.llp import LlpEventKind
from stagecoach.sim.cosim.llp import WINDOW_OCTETS, LlpPort
from stagecoach.sim.cosim.streams import start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

pytestmark = pytest.mark.timeout(300)

LATENCIES = (4, 320)
OPEN, SHUT = 1, 2
OCTETS = bytes(range(16))


class Wires(wiring.Component):
    """A device that is the test."""

    test: In(LlpSignature(RnicConfig()))
    llp: Out(LlpSignature(RnicConfig()))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += Signal().eq(1)  # there is a clock
        wiring.connect(m, wiring.flipped(self.test), wiring.flipped(self.llp))
        return m


@pytest.mark.parametrize("latency", LATENCIES)
def test_received_octets_come_after_the_latency(latency: int):
    parameters = {"LATENCY": str(latency)}
    run_cocotb(Wires(), __name__, test_filter="check_latency$", parameters=parameters)


def test_a_shut_window_grants_nothing_and_an_open_one_does():
    run_cocotb(Wires(), __name__, test_filter="check_windows$")


async def start(dut: Any, latency: int) -> LlpPort:
    llp = LlpPort(dut, "llp", dut.clk, latency=latency)
    for name in ("tx_valid", "rx_request_valid", "rx_release_valid"):
        getattr(dut, f"test__{name}").value = 0
    dut.test__rx_ready.value = dut.test__event_ready.value = 1
    await start_clock_and_reset(dut)
    cocotb.start_soon(llp.run())
    return llp


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_latency(dut: Any) -> None:
    latency = int(parameter("LATENCY"))
    llp = await start(dut, latency)
    llp.attach(OPEN, lambda octets: None)
    llp.receive(OPEN, OCTETS)
    await ClockCycles(dut.clk, 10)
    dut.test__rx_request_connection.value = OPEN
    dut.test__rx_request_position.value = 0
    dut.test__rx_request_octets.value = len(OCTETS)
    dut.test__rx_request_valid.value = 1
    await RisingEdge(dut.clk)
    dut.test__rx_request_valid.value = 0
    taken = llp.cycle
    words = []
    while len(words) < 2:
        await RisingEdge(dut.clk)
        if dut.test__rx_valid.value == 1:
            words.append((llp.cycle - taken, int(dut.test__rx_data.value)))
    cycles, data = zip(*words, strict=True)
    assert b"".join(word.to_bytes(8, "little") for word in data) == OCTETS
    assert cycles[0] in range(latency, latency + 3)
    assert cycles[1] == cycles[0] + 1  # the latency is paid once


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_windows(dut: Any) -> None:
    llp = await start(dut, LATENCIES[0])
    llp.attach(OPEN, lambda octets: None)
    llp.attach(SHUT, lambda octets: None, shut=True)
    windows = {}
    for _ in range(20):
        await RisingEdge(dut.clk)
        if (
            dut.test__event_valid.value == 1
            and dut.test__event_kind.value == LlpEventKind.TX_WINDOW
        ):
            windows[int(dut.test__event_connection.value)] = int(dut.test__event_value.value)
    assert windows == {OPEN: WINDOW_OCTETS, SHUT: 0}
