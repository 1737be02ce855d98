"""A QP command is stored once, after the counters of its QP have been read."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.rdmap.transmit.command import TransmitCommand
from stagecoach.gateware.rdmap.transmit.limits import connect_layout
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig()
COMMANDS = 200
KINDS = [kind for kind in QpCommandKind if kind is not QpCommandKind.NONE]


@pytest.mark.parametrize("pattern", ["always", "slow"])
def test_transmit_command(pattern):
    run_cocotb(TransmitCommand(CONFIG), __name__, parameters={"PATTERN": pattern})


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_commands_are_stored_and_limits_start(dut):
    rng = seeded_random(parameter("PATTERN"))
    source = StreamSource(dut, "command", Layouts(CONFIG).qp_command, rng=rng)
    sink = StreamSink(dut, "connect", connect_layout(CONFIG), rng=rng, pattern=parameter("PATTERN"))
    StreamMonitor(dut, "connect", keep=False)
    await start_clock_and_reset(dut)
    for _ in range(COMMANDS):
        kind = rng.choice(KINDS)
        fields = {
            "qp": rng.randrange(CONFIG.qps),
            "emss": rng.getrandbits(16),
            "transmit_markers": rng.getrandbits(1),
        }
        done = cocotb.start_soon(source.send({"kind": kind.value, **fields}))
        events, cycles = [], 0
        while not done.done():
            await RisingEdge(dut.clk)
            cycles += bool(dut.command__valid.value)
            if dut.restart.value:
                events.append("restart")
            if dut.store.value:
                events.append("store")
                connects = kind is QpCommandKind.CONNECT
                assert bool(dut.set_settings.value) == connects
                assert bool(dut.halted.value) == (not connects)
                assert bool(dut.set_pd.value) == (kind is QpCommandKind.CREATE)
            else:
                assert not dut.set_settings.value
                assert not dut.set_pd.value
        assert events == ["restart", "store"]
        if kind is QpCommandKind.CONNECT:
            taken = await sink.get()
            expected = {"qp": fields["qp"], "emss": fields["emss"]}
            assert taken == expected | {"markers": fields["transmit_markers"]}
        else:
            assert cycles == 6
    assert not sink.take_all()
