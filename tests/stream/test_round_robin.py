"""The round-robin choice is the nearest requester after the latest one, for every request."""

import cocotb
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from stagecoach.gateware.stream.round_robin import choose_round_robin, preceded_round_robin
from tests.support.runner import parameter, run_cocotb


class Choice(wiring.Component):
    """`choose_round_robin` and `preceded_round_robin` among `count` requesters."""

    def __init__(self, count):
        super().__init__(
            {
                "requests": In(count),
                "latest": In(range(count)),
                "choice": Out(range(count)),
                "preceded": Out(count),
            }
        )

    def elaborate(self, platform):
        m = Module()
        latest, choice = Signal.like(self.latest), Signal.like(self.choice)
        choose_round_robin(m, list(self.requests), latest, choice)
        preceded = preceded_round_robin(m, list(self.requests), latest)
        m.d.comb += [latest.eq(self.latest), self.choice.eq(choice), self.preceded.eq(preceded)]
        return m


@pytest.mark.parametrize("count", [2, 3, 5])
def test_choice(count):
    run_cocotb(Choice(count), __name__, parameters={"COUNT": str(count)})


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_choice_is_the_next_in_circular_order(dut):
    count = int(parameter("COUNT"))
    for latest in range(count):
        circle = [(latest + distance) % count for distance in range(1, count + 1)]
        for requests in range(1 << count):
            dut.latest.value, dut.requests.value = latest, requests
            await Timer(1, "ns")
            expected = next((number for number in circle if requests >> number & 1), 0)
            assert int(dut.choice.value) == expected, (latest, f"{requests:b}")
            for place, number in enumerate(circle):
                precedes = any(requests >> other & 1 for other in circle[:place])
                assert int(dut.preceded.value) >> number & 1 == precedes, (latest, f"{requests:b}")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_every_requester_has_its_turn(dut):
    count = int(parameter("COUNT"))
    dut.requests.value, latest = (1 << count) - 1, 0
    turns = []
    for _ in range(3 * count):
        dut.latest.value = latest
        await Timer(1, "ns")
        latest = int(dut.choice.value)
        turns.append(latest)
    assert all(turns.count(number) == 3 for number in range(count))
