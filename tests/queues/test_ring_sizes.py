"""Completion and event rings of the smallest and the largest size hold as many as they have."""

import cocotb
import pytest
from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.queues.ring_writer import RingWriter
from stagecoach.sim.cosim.streams import StreamSource, start_clock_and_reset, unpack
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=4, cqs=4)
LAYOUTS = Layouts(CONFIG)
EVENTS = CONFIG.cqs
ENTRY = 32


@pytest.mark.parametrize("log2", [0, 14, 15])
def test_a_ring_of_any_size_is_full_when_it_is(log2):
    run_cocotb(EndlessWork(), __name__, parameters={"LOG2": str(log2)})


class EndlessWork(wiring.Component):
    """Completions for CQ 0, and events, up to `goal` of each, and a memory that takes all at once.

    So the simulator needs no Python in each cycle. `written` counts the entries of each ring whose
    words came, whose last one went to `address`.
    """

    def __init__(self):
        super().__init__(
            {
                "cq_command": In(stream.Signature(LAYOUTS.cq_command)),
                "cq_doorbell": In(stream.Signature(LAYOUTS.cq_doorbell)),
                "goal": In(32),
                "accepted": Out(32),
                "finished": Out(32),
                "written": Out(data.ArrayLayout(32, 2)),
                "address": Out(data.ArrayLayout(64, 2)),
                "overflows": Out(32),
                "dropped_events": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.writer = writer = RingWriter(CONFIG)
        wiring.connect(m, wiring.flipped(self.cq_command), writer.cq_command)
        wiring.connect(m, wiring.flipped(self.cq_doorbell), writer.cq_doorbell)
        for source in (writer.send, writer.event):
            count = Signal(32)
            m.d.comb += source.valid.eq(count != self.goal)
            m.d.sync += count.eq(count + (source.valid & source.ready))
        command, words = writer.write.command, writer.write.data
        is_event = command.p.address[63]
        with m.If(command.valid & command.ready):
            m.d.sync += [
                self.written[is_event].eq(self.written[is_event] + 1),
                self.address[is_event].eq(command.p.address),
            ]
        m.d.comb += [
            command.ready.eq(1),
            words.ready.eq(1),
            writer.overflow.ready.eq(1),
            self.dropped_events.eq(writer.dropped_events),
        ]
        m.d.sync += [
            writer.write.done.eq(words.valid & words.p.last),
            self.accepted.eq(self.accepted + writer.accepted),
            self.finished.eq(self.finished + writer.finished),
            self.overflows.eq(self.overflows + writer.overflow.valid),
        ]
        return m


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_so_many_entries_are_written(dut):
    """And no more: with nothing consumed, and again when some entries were."""
    size, more = 1 << int(parameter("LOG2")), 3
    bases = (1 << 20, 1 << 63)
    commands = StreamSource(dut, "cq_command", LAYOUTS.cq_command)
    doorbells = StreamSource(dut, "cq_doorbell", LAYOUTS.cq_doorbell)
    dut.goal.value = 0
    await start_clock_and_reset(dut)
    for ring, base in zip((0, EVENTS), bases, strict=True):
        command = {"cq": ring, "enable": 1, "base": base, "log2": int(parameter("LOG2"))}
        await commands.send(command)
    written, given, dropped = 0, 0, 0
    for consumed in (0, max(1, size // 3), size):
        for ring in (0, EVENTS):
            consumer = written - size + consumed if written else 0
            await doorbells.send({"cq": ring, "consumer": consumer % 65536})
        fits = consumed if written else size
        written, given, dropped = written + fits, given + fits + more, dropped + more
        dut.goal.value = given
        while int(dut.finished.value) < 2 * given:
            await Timer(10 * max(size, 100), "ns")
        assert unpack(data.ArrayLayout(32, 2), dut.written.value) == [written] * 2
        last = (written - 1) % size * ENTRY
        assert unpack(data.ArrayLayout(64, 2), dut.address.value) == [base + last for base in bases]
        assert int(dut.dropped_events.value) == dropped
        assert int(dut.accepted.value) == 2 * given
        assert int(dut.overflows.value) > 0
