"""What the exported Verilog does that Amaranth's simulator would not show."""

import cocotb
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from cocotb.triggers import FallingEdge

from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.sim.cosim.streams import start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

WORDS = 16


class Constant(wiring.Component):
    """Half of its output comes from a register that keeps its first value."""

    def __init__(self) -> None:
        super().__init__({"i": In(1), "o": Out(data.StructLayout({"moves": 8, "rests": 8}))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rests, moves = Signal(8, init=0x5A), Signal(8)
        with m.If(self.i):
            m.d.sync += rests.eq(rests + 1)
        m.d.sync += moves.eq(moves + 1)
        m.d.comb += [self.o.rests.eq(rests), self.o.moves.eq(moves)]
        return m


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_what_never_changes_is_there_from_the_start(simulator):
    run_cocotb(Constant(), __name__, test_filter="check_constant", simulator=simulator)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_constant(dut):
    dut.i.value = 0
    await start_clock_and_reset(dut)
    for _ in range(10):
        await FallingEdge(dut.clk)
        assert int(dut.o.value) >> 8 == 0x5A


class ReadAndWrite(wiring.Component):
    """A memory read at one address and written at another."""

    def __init__(self, attributes: dict[str, int]) -> None:
        self._attributes = attributes
        super().__init__(
            {"read": In(4), "data": Out(8), "write": In(4), "enable": In(1), "value": In(8)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = Memory(
            shape=8, depth=WORDS, init=range(WORDS), attrs=self._attributes
        )
        read, write = words.read_port(), words.write_port()
        m.d.comb += [
            read.addr.eq(self.read),
            self.data.eq(read.data),
            write.addr.eq(self.write),
            write.en.eq(self.enable),
            write.data.eq(self.value),
        ]
        return m


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_a_word_read_while_it_is_written_is_undefined_if_the_memory_says_so(simulator, kept):
    run_cocotb(
        ReadAndWrite({} if kept else NO_COLLISION),
        __name__,
        test_filter="check_collision",
        simulator=simulator,
        parameters={"KEPT": str(kept)},
    )


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_collision(dut):
    dut.enable.value = 0
    dut.value.value = 0x33
    await start_clock_and_reset(dut)
    await FallingEdge(dut.clk)
    dut.enable.value = 1
    for address in range(2, WORDS):
        # Another word is written, and then the same one.
        for write, good in ((1, True), (address, parameter("KEPT") == "True")):
            dut.read.value, dut.write.value = address, write
            await FallingEdge(dut.clk)
            word = dut.data.value
            assert (word.is_resolvable and int(word) == address) is good
