"""Windows take the steps of the vectors, and those of the reference TCP."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from stagecoach.gateware.tcp.congestion import (
    CONGESTION,
    CWND_MOST,
    DUPLICATES,
    Congestion,
    CongestionOperation,
)
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset, unpack
from stagecoach.sim.model.tcp import congestion as model
from tests.sim.model.tcp.vectors import VECTORS
from tests.support.runner import run_cocotb

SPACE = 1 << 32
CYCLES = 4
CYCLES_OF_NUMBERS = 3
LIMIT_CYCLES = 2
Operation = CongestionOperation


class Control:
    """The block, and a connection's numbers; positions count from its first octet."""

    def __init__(
        self, dut: Any, base: int, smss: int, cwnd: int, ssthresh: int, recover: int = -2
    ) -> None:
        self.dut, self.base, self.smss = dut, base, smss
        self.rng = seeded_random(base)
        self.state: Any = {"cwnd": cwnd, "ssthresh": ssthresh, "recover": (base + recover) % SPACE}
        self.una = self.following = self.maximum = 0
        self.limit = cwnd
        self.retransmit = self.restart = False

    def number(self, position: int) -> int:
        return (self.base + position) % SPACE

    @property
    def recover(self) -> int:
        """As a position; before SND.UNA by 2 if it does not count any more."""
        behind = (self.number(self.una) - self.state["recover"]) % SPACE
        return self.una - (behind if behind < SPACE // 2 else behind - SPACE)

    async def step(self, operation: Operation, *, ack: int = 0, octets: int = 0) -> None:
        dut = self.dut
        dut.operation.value, dut.smss.value = operation.value, self.smss
        dut.una.value = self.number(self.una)
        dut.next.value = self.number(self.following)
        dut.highest.value = self.number(self.maximum)
        dut.acknowledgment.value, dut.octets.value = self.number(ack), octets
        dut.state.value = pack(CONGESTION, self.state)
        # Good in the fourth cycle, at whose end it is looked at, and in the next one.
        await ClockCycles(dut.clk, CYCLES_OF_NUMBERS)
        for number in (dut.una, dut.next, dut.highest):
            number.value = self.rng.getrandbits(32)
        await ClockCycles(dut.clk, CYCLES - CYCLES_OF_NUMBERS + self.rng.randrange(2))
        self.state = unpack(CONGESTION, int(dut.state_after.value))
        self.retransmit, self.restart = bool(dut.retransmit.value), bool(dut.restart.value)
        dut.state.value = pack(CONGESTION, self.state)
        await ClockCycles(dut.clk, LIMIT_CYCLES)
        self.limit = int(dut.limit.value)


class Sender:
    """Sends whole segments of endless data; what a connection does around its window."""

    def __init__(self, dut: Any, setup: dict[str, Any], base: int) -> None:
        smss = setup["smss"]
        cwnd = smss if setup.get("lost_syn") else setup.get("iw") or model.initial_window(smss)
        # The vectors begin as RFC 6582 does it literally.
        self.control = Control(dut, base, smss, cwnd, setup.get("ssthresh", CWND_MOST), recover=-1)
        self.window = setup["rwnd"]

    async def event(self, name: str, position: int = 0) -> tuple[list[list[Any]], str]:
        """What is sent, and what becomes of the timer."""
        control = self.control
        sent: list[list[Any]] = []
        timer = ""
        if name == "ack" and position > control.una:
            await control.step(Operation.ACKNOWLEDGE, ack=position)
            control.una = position
            control.following = max(control.following, position)
            timer = "restart" if control.restart else ""
            if control.una == control.maximum:
                timer = "stop"
        elif name == "ack" and control.maximum > control.una:
            await control.step(Operation.DUPLICATE)
        elif name == "timeout":
            await control.step(Operation.EXPIRE)
            control.following = control.una
            timer = "double"
        elif name == "idle":
            await control.step(Operation.IDLE)
        if name == "ack" and control.retransmit:
            sent.append(["retransmit", control.una])
        return sent + await self._send(), timer

    async def _send(self) -> list[list[Any]]:
        control, sent = self.control, []
        smss = control.smss
        while control.following + smss - control.una <= min(control.limit, self.window):
            new = control.following == control.maximum
            sent.append(["new" if new else "retransmit", control.following])
            control.following += smss
            control.maximum = max(control.maximum, control.following)
            if new:
                await control.step(Operation.SENT, octets=smss)
        return sent


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_vectors(dut: Any) -> None:
    rng = seeded_random()
    await start_clock_and_reset(dut)
    for vector in VECTORS["congestion"]:
        sender = Sender(dut, vector["setup"], rng.choice([rng.getrandbits(32), SPACE - 20_000]))
        for number, step in enumerate(vector["steps"]):
            control, event = sender.control, step["event"]
            control.retransmit = False
            sent, timer = await sender.event(*event)
            state = control.state
            found = {
                "cwnd": state.get("cwnd"),
                "ssthresh": state["ssthresh"],
                "dupacks": state.get("duplicates", 0),
                "nxt": control.following,
                "max": control.maximum,
                "sent": sent,
                "timer": timer,
            }
            expected = {key: step[key] for key in found}
            expected["dupacks"] = min(expected["dupacks"], DUPLICATES + 1)
            assert found == expected, f"{vector['name']}, step {number}: {event}"
            assert state.get("recovering", 0) == (step["mode"] == "fast recovery")
            assert control.recover == max(step["recover"], control.una - 2)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_random_events(dut: Any) -> None:
    """ACKs of anything, lost ones, and windows of all sizes; numbers go round."""
    rng = seeded_random()
    await start_clock_and_reset(dut)
    recoveries = 0
    for _ in range(40):
        smss = rng.choice([536, 1460, 1460, 8960])
        cwnd, ssthresh = rng.choice([1, 2, 10, 40]) * smss, rng.choice([CWND_MOST, 20 * smss])
        control = Control(dut, rng.choice([0, SPACE - 40 * smss]), smss, cwnd, ssthresh)
        reference = model.Congestion(smss, cwnd, ssthresh, recover=-2)
        for _ in range(40):
            una, outstanding = control.una, control.maximum - control.una
            kind = rng.random()
            verdict = model.Verdict()
            if kind < 0.3:
                octets = rng.choice([smss, smss, rng.randint(1, smss)])
                control.maximum += octets
                control.following = control.maximum
                reference.sent_new(octets)
                await control.step(Operation.SENT, octets=octets)
            elif kind < 0.5 and outstanding:
                some = [outstanding, min(outstanding, smss), rng.randint(1, outstanding)]
                # All but an octet: a partial one, if all of it was sent before the loss.
                ack = una + rng.choice([*some, max(outstanding - 1, 1)])
                verdict = reference.acknowledged(una, ack, control.maximum)
                await control.step(Operation.ACKNOWLEDGE, ack=ack)
                control.una, control.following = ack, max(control.following, ack)
            elif kind < 0.93 and outstanding:
                verdict = reference.duplicate(una, control.following, control.maximum)
                await control.step(Operation.DUPLICATE)
                recoveries += verdict.retransmit
            elif kind < 0.97 and outstanding:
                reference.expire(una, control.maximum)
                await control.step(Operation.EXPIRE)
                control.following = control.una + min(smss, outstanding)
            elif kind > 0.98:
                reference.idle()
                await control.step(Operation.IDLE)
            else:
                continue
            state = control.state
            assert (control.retransmit, control.restart) == (
                verdict.retransmit,
                verdict.restart_timer,
            )
            assert control.limit == reference.limit
            assert state["cwnd"] == reference.cwnd
            assert state["ssthresh"] == reference.ssthresh
            assert state["counted"] == reference._counted
            assert state["recovering"] == reference.recovering
            assert state["duplicates"] == min(reference.duplicates, DUPLICATES + 1)
            assert control.recover == max(reference.recover, control.una - 2)
    assert recoveries > 10


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_window_that_is_large_stays(dut: Any) -> None:
    """A loss is seen, too, when half of all numbers were acknowledged since the last one."""
    await start_clock_and_reset(dut)
    control = Control(dut, 5, 1460, CWND_MOST, 1 << 20)
    control.state["counted"] = CWND_MOST
    while control.maximum < 3 << 30:
        control.maximum += 1 << 28
        control.following = control.maximum
        await control.step(Operation.ACKNOWLEDGE, ack=control.maximum)
        control.una = control.maximum
        assert control.state["cwnd"] == CWND_MOST
    control.maximum += 10 * 1460
    control.following = control.maximum
    for number in range(DUPLICATES):
        await control.step(Operation.DUPLICATE)
        assert control.retransmit == (number == DUPLICATES - 1)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_partial_ack_of_more_than_the_window_leaves_a_segment(dut: Any) -> None:
    """Duplicate ACKs were lost, so that the window did not grow by what the partial one is for."""
    await start_clock_and_reset(dut)
    control = Control(dut, SPACE - 5000, 1460, 20 * 1460, CWND_MOST)
    control.following = control.maximum = 20 * 1460
    for _ in range(DUPLICATES):
        await control.step(Operation.DUPLICATE)
    await control.step(Operation.ACKNOWLEDGE, ack=19 * 1460)
    assert control.retransmit
    assert control.state["cwnd"] == 1460


@pytest.mark.requirement("CC-3.1-01", "CC-3.1-09", "CC-3.2-06", "CC-3.2-07", "CC-4.1-01")
@pytest.mark.requirement("NR-3.2-01", "NR-3.2-02", "NR-3.2-05", "LT-2-01")
def test_congestion() -> None:
    run_cocotb(Congestion(), __name__)
