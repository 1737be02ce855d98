"""Every QP follows its state diagram, and only its first error becomes an event."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.queues.qp_states import QpState, QpStates
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.queues.ports import Pulses
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=16)
LAYOUTS = Layouts(CONFIG)
ERRORS = 3


@pytest.mark.requirement("RDMAP-7.1-05", "DDP-6.2.2-01", "MPA-7.1.2-14")
@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
def test_states(pattern):
    run_cocotb(QpStates(CONFIG, ERRORS), __name__, parameters={"PATTERN": pattern})


class Model:
    """State diagram of one QP in plain Python."""

    def __init__(self):
        self.state, self.cause, self.may_send = "RESET", 0, False

    def command(self, kind, initiator):
        if kind == "CREATE":
            self.state, self.cause, self.may_send = "INIT", 0, False
        elif kind == "DESTROY":
            self.state, self.cause, self.may_send = "RESET", 0, False
        elif kind == "CONNECT" and self.state == "INIT":
            self.state, self.may_send = "RTS", bool(initiator)
        elif kind == "STOP" and self.state in ("INIT", "RTS"):
            self.state, self.cause, self.may_send = "ERROR", Cause.STOPPED_BY_DRIVER, False

    def error(self, cause):
        """Return whether it becomes an event."""
        if self.state not in ("INIT", "RTS"):
            return False
        self.state, self.cause, self.may_send = "ERROR", cause, False
        return True

    def segment(self):
        """Return whether the QP is released."""
        released = self.state == "RTS" and not self.may_send
        self.may_send |= released
        return released


class Bench:
    def __init__(self, dut, rng):
        self.dut, pattern = dut, parameter("PATTERN")
        self.errors = [
            StreamSource(dut, f"errors__{i}", LAYOUTS.qp_error, rng=rng) for i in range(ERRORS)
        ]
        self.commands = StreamSource(dut, "qp_command", LAYOUTS.qp_command)
        self.events = StreamSink(dut, "event", LAYOUTS.qp_error, rng=rng, pattern=pattern)
        self.terminations = StreamSink(
            dut, "termination", LAYOUTS.termination, rng=rng, pattern=pattern
        )
        StreamMonitor(dut, "event")
        StreamMonitor(dut, "termination")
        self.released = Pulses(dut, dut.released__valid, dut.released__qp)
        dut.first_segment__valid.value = 0
        dut.query_qp.value = 0

    async def command(self, kind, qp, **fields):
        await self.commands.send({"kind": QpCommandKind[kind].value, "qp": qp, **fields})

    async def segment(self, qp):
        self.dut.first_segment__qp.value = qp
        self.dut.first_segment__valid.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.first_segment__valid.value = 0

    async def query(self, qp):
        self.dut.query_qp.value = qp
        await cycles(self.dut, 3)
        state = QpState(int(self.dut.query_state.value)).name
        return state, int(self.dut.query_cause.value)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_random_life_follows_the_diagram(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    models = [Model() for _ in range(CONFIG.qps)]
    events, released, terminations = [], [], []
    for _ in range(1200):
        qp = rng.randrange(CONFIG.qps)
        model = models[qp]
        choice = rng.random()
        if choice < 0.5:
            kind = rng.choice(["CREATE", "CONNECT", "CONNECT", "CONNECT", "STOP", "DESTROY"])
            initiator = rng.getrandbits(1)
            was = model.may_send
            model.command(kind, initiator)
            if model.may_send and not was:
                released.append(qp)
            await bench.command(kind, qp, initiator=initiator)
            # Taken two cycles before the vectors show it.
            await cycles(dut, 2)
            assert (int(dut.running.value) >> qp & 1) == (model.state == "RTS")
            assert (int(dut.may_send.value) >> qp & 1) == model.may_send
        elif choice < 0.75:
            if model.segment():
                released.append(qp)
            await bench.segment(qp)
            await cycles(dut, 5)
        else:
            error = {
                "qp": qp,
                "cause": rng.randint(1, 40),
                "index": rng.getrandbits(16),
                "ulpdu_length": rng.getrandbits(16),
                "header": rng.getrandbits(368),
            }
            may_send = model.may_send
            if model.error(error["cause"]):
                events.append(error)
                fields = ("qp", "cause", "ulpdu_length", "header")
                terminations.append({"may_send": may_send} | {name: error[name] for name in fields})
            await rng.choice(bench.errors).send(error)
            await cycles(dut, 6)
            while dut.event__valid.value or dut.termination__valid.value:
                await RisingEdge(dut.clk)
        assert int(dut.running.value) == sum(
            (it.state == "RTS") << i for i, it in enumerate(models)
        )
        assert int(dut.may_send.value) == sum(it.may_send << i for i, it in enumerate(models))
        other = rng.randrange(CONFIG.qps)
        assert await bench.query(other) == (models[other].state, models[other].cause)
    await cycles(dut, 20)
    assert bench.events.take_all() == events
    assert bench.terminations.take_all() == terminations
    assert bench.released.qps == released
    assert len(events) > 20 and len(released) > 20


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_one_event_of_many_errors_at_once(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    for qp in range(CONFIG.qps):
        await bench.command("CREATE", qp)
        await bench.command("CONNECT", qp, initiator=1)
    given = {}
    for source in bench.errors:
        for qp in rng.sample(range(CONFIG.qps), CONFIG.qps):
            cause = rng.randint(1, 40)
            given.setdefault(qp, []).append(cause)
            source.put({"qp": qp, "cause": cause})
    got = await bench.events.get_many(CONFIG.qps)
    await cycles(dut, 300)
    assert not len(bench.events)
    assert sorted(event["qp"] for event in got) == list(range(CONFIG.qps))
    for event in got:
        assert event["cause"] in given[event["qp"]]
        assert await bench.query(event["qp"]) == ("ERROR", event["cause"])
    assert int(dut.running.value) == 0 and int(dut.may_send.value) == 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_segment_that_meets_a_stop_releases_nothing(dut):
    bench = Bench(dut, seeded_random())
    await start_clock_and_reset(dut)
    for distance in range(8):
        await bench.command("CREATE", 5)
        await bench.command("CONNECT", 5)
        bench.commands.put({"kind": QpCommandKind.STOP.value, "qp": 5})
        await cycles(dut, distance)
        await bench.segment(5)
        await cycles(dut, 12)
        assert int(dut.running.value) == 0 and int(dut.may_send.value) == 0
