"""Hosts of the reference TCP get all octets in order through a wire that loses and reorders."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.tcp.layouts import TransmitOperation
from stagecoach.gateware.tcp.transmit_path import TransmitPath
from tests.support.runner import run_cocotb
from tests.support.verdicts import Verdicts, each_check, simulate
from tests.tcp.lossy_wire import QUIET_CYCLES, Wire
from tests.tcp.path_bench import LARGEST, RING, SMALLEST, Bench, start
from tests.tcp.receive_reference import SPACE

FAST = False  # much of the engine, whose blocks have tests of their own

pytestmark = pytest.mark.slow

PATTERNS = ("always", "random")
DROPS_CYCLES = 1000
"""In which a store that is full of FPDUs drops them: 16, and two of the longest."""


async def send_all(bench: Bench, octets: dict[int, int], *, close: bool = True) -> None:
    """The LLP sends so many on each connection, as it may, and closes."""
    rng = bench.rng
    while octets:
        connection = rng.choice(list(octets))
        flow, left = bench.flows[connection], octets[connection]
        count = rng.choice([4, 24, rng.randint(1, flow.emss), flow.emss])
        count = min(count, flow.allowed, left)
        if bench.tx.pending > 100 or count <= 0:
            await ClockCycles(bench.dut.clk, 20)
        else:
            octets[connection] -= count
            bench.fpdu(connection, count, close=close and count == left)
            if count == left:
                del octets[connection]
        if rng.random() < 0.05:
            await ClockCycles(bench.dut.clk, rng.choice([100, 1000, 5000]))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_all_octets_arrive(dut: Any) -> None:
    """Hosts of the reference TCP, a wire that loses, and memory that takes its time."""
    bench = await start(dut, SPACE - 4000)
    rng, wire = bench.rng, Wire(bench, bench.rng, 0.08)
    octets = {}
    some = [0, bench.connections - 1, *{*range(1, bench.connections - 1)} & {7, 100}]
    for place, connection in enumerate(some):
        slow = place % 2 == 1
        number = rng.choice([SPACE - 3000, RING - 5000, rng.getrandbits(32)])
        window, shift, buffer = (3500, 0, 3500) if slow else (0xFFFF, 2, 1 << 18)
        sizes = {"window": window, "shift": shift}
        flow = await bench.begin(connection, number, attach=False, **sizes)
        # Only where they grow at the end may a window be within an FPDU.
        flow.cut = slow
        wire.add(connection, buffer, slow=slow)
        bench.octets(connection, rng.randint(1, 3000))
        await bench.attach(connection)
        octets[connection] = 50_000 // len(some)
    await send_all(bench, octets)
    await wire.ended(set(some))
    missing = [what for what in SEEN if not wire.seen[what]]
    assert not missing or bench.connections < LARGEST[0], missing
    assert bench.read.commands
    for flow in bench.flows.values():
        flow.segments.clear()
    await bench.silent()


SEEN = ("lost", "again", "shut", "reports a gap")
"""What has to happen by chance."""


def end(bench: Bench, connection: int, how: str) -> str:
    """Something ends it; what the notice says."""
    ring = bench.ring(connection)
    if how == "abort":
        bench.command(connection, TransmitOperation.ABORT)
        return "ABORTED"
    if how == "reset":
        bench.put_ack(connection, 0, 0, 0, acknowledges=0, reset=1)
        return "RESET"
    if how == "write":
        bench.write.failing = range(ring, ring + RING)
    elif how == "read":
        bench.read.bad = set(range(ring & ~7, ring + RING, 8))
    else:
        bench.failed.put(connection)
    return "MEMORY"


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_connections_that_end_and_begin_anew(dut: Any) -> None:
    """In the middle of what they send, by all causes; another one goes on."""
    bench = await start(dut)
    rng, wire = bench.rng, Wire(bench, bench.rng, 0.05)
    other = bench.connections - 1
    await bench.begin(0, SPACE - 9000, shift=2)
    wire.add(0, 1 << 18, slow=False)
    ends = ["abort", "reset", "write", "read", "other"] * 2
    for how in rng.sample(ends, len(ends)):
        flow = await bench.begin(other, rng.getrandbits(32), shift=2)
        wire.add(other, 1 << 18, slow=False)
        amounts = {0: rng.randint(1, 2000), other: rng.randint(1, 8000)}
        await send_all(bench, amounts, close=False)
        # Nobody answers from now on: what is outstanding is sent again.
        del wire.hosts[other]
        cause = end(bench, other, how)
        for _ in range(3):
            if flow.allowed > 0:
                bench.fpdu(other, min(flow.allowed, flow.emss, 300))
        while "CLOSED" not in flow.said or not flow.notices:
            await ClockCycles(dut.clk, 10)
        # All that is under way leaves before its number is used again, without a sign if it is
        # an FPDU that came too late.
        await bench.rest(QUIET_CYCLES)
        await ClockCycles(dut.clk, DROPS_CYCLES)
        assert flow.notices[-1] == cause, how
        bench.write.failing, bench.read.bad = range(0), set()
        flow.segments.clear()
    await send_all(bench, {0: 3000})
    await wire.ended({0})
    bench.flows[0].segments.clear()
    await bench.silent()


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    qps, mtu = LARGEST
    block = TransmitPath(RnicConfig(qps=qps), mtu)
    return simulate(tmp_path_factory, block, __name__, request.param, PATTERNS)


@each_check(globals())
def test_transmit_path_on_a_wire(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


def test_transmit_path_on_a_wire_of_the_smallest_size() -> None:
    qps, mtu = SMALLEST
    run_cocotb(
        TransmitPath(RnicConfig(qps=qps), mtu),
        __name__,
        parameters={"PATTERN": "random", "SIZES": f"{qps} {mtu}"},
    )
