"""The fence waits for all that is under way in any place when it starts, and for nothing later."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.tcp.engine_fence import STAGES, EngineFence
from stagecoach.gateware.tcp.places import RECEIVE_PLACES, TRANSMIT_PLACES
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

SMALLEST, LARGEST = 2, 256
NOTHING_UNDER_WAY = 91
LONG = 3 * NOTHING_UNDER_WAY
LAYOUTS = {"receive": RECEIVE_PLACES, "transmit": TRANSMIT_PLACES}
PLACES = [(side, name) for side, layout in LAYOUTS.items() for name in layout.members]


class Bench:
    """Pulses of the places, and whether the fence is busy."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        dut.start.value = 0
        for side in LAYOUTS:
            for what in ("began", "ended"):
                getattr(dut, f"{side}_{what}").value = 0

    async def pulse(self, what: str, *places: tuple[str, str], count: int = 1) -> None:
        dut = self.dut
        for side, layout in LAYOUTS.items():
            fields = {name: 1 for each, name in places if each == side}
            getattr(dut, f"{side}_{what}").value = pack(layout, fields)
        await cycles(dut, count)
        for side in LAYOUTS:
            getattr(dut, f"{side}_{what}").value = 0

    async def start(self) -> None:
        self.dut.start.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.start.value = 0
        await RisingEdge(self.dut.clk)
        assert self.dut.busy.value

    async def passes(self) -> int:
        """Cycles until it is not busy any more."""
        count = 0
        while self.dut.busy.value:
            await RisingEdge(self.dut.clk)
            count += 1
        return count


async def start(dut: Any) -> Bench:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    return bench


def test_each_place_is_in_one_stage() -> None:
    staged = [
        (side, name)
        for receive, transmit in STAGES
        for side, names in (("receive", receive), ("transmit", transmit))
        for name in names
    ]
    assert sorted(staged) == sorted(PLACES)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_each_place_is_waited_for(dut: Any) -> None:
    """Alone; and what begins and ends in one cycle is none."""
    bench = await start(dut)
    await bench.start()
    assert await bench.passes() == NOTHING_UNDER_WAY
    for place in PLACES:
        await bench.pulse("began", place)
        await cycles(dut, 3)
        await bench.start()
        # Others come and go.
        other = PLACES[(PLACES.index(place) + 1) % len(PLACES)]
        await bench.pulse("began", other)
        await bench.pulse("ended", other)
        await cycles(dut, LONG)
        assert dut.busy.value, place
        await bench.pulse("ended", place)
        await bench.passes()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_begins_later_is_not_waited_for(dut: Any) -> None:
    bench = await start(dut)
    first = [(side, name) for side, name in PLACES if name in ("segment", "fpdu")]
    first = [place for place in first if place != ("transmit", "segment")]
    await bench.start()
    await cycles(dut, 20)
    await bench.pulse("began", *first)
    await bench.passes()
    await bench.pulse("ended", *first)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_item_that_goes_from_place_to_place(dut: Any) -> None:
    """It is waited for to its end."""
    bench = await start(dut)
    way = (("transmit", "fpdu"), ("transmit", "write"), ("transmit", "event"))
    way += (("transmit", "segment"), ("transmit", "failure"))
    rng = seeded_random()
    await bench.pulse("began", way[0])
    await bench.start()
    for place, following in zip(way, (*way[1:], None), strict=True):
        await cycles(dut, rng.randrange(LONG))
        assert dut.busy.value
        await bench.pulse("ended", place)
        if following:
            await bench.pulse("began", following)
    await bench.passes()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_as_many_as_there_may_be(dut: Any) -> None:
    """Failures of all connections, and one more."""
    bench = await start(dut)
    most = int(parameter("CONNECTIONS")) + 1
    await bench.pulse("began", ("transmit", "failure"), count=most)
    await bench.start()
    await bench.pulse("ended", ("transmit", "failure"), count=most - 1)
    await cycles(dut, LONG)
    assert dut.busy.value
    await bench.pulse("ended", ("transmit", "failure"))
    await bench.passes()


@pytest.mark.parametrize("connections", [SMALLEST, LARGEST])
def test_engine_fence(connections: int) -> None:
    parameters = {"CONNECTIONS": str(connections)}
    run_cocotb(EngineFence(connections), __name__, parameters=parameters)


@pytest.mark.parametrize("connections", [1, 257])
def test_sizes_that_are_not_allowed(connections: int) -> None:
    with pytest.raises(ValueError, match="2 to 256"):
        EngineFence(connections)
