"""The engine carries streams both ways, tells the driver of all else, and forgets what has ended."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.tcp.engine import TcpEngine
from stagecoach.gateware.tcp.layouts import TransmitOperation
from stagecoach.sim.model.tcp.state import State
from tests.support.verdicts import Verdicts, each_check, simulate
from tests.tcp.engine_bench import Bench, Flow, start

SIZES = ("2 576", "64 1500")
"""Connections, and MTU."""


async def device_sends(bench: Bench, flow: Flow, octets: int, *, close: bool = True) -> None:
    """As it may: within what was granted, and EMSS."""
    rng = bench.rng
    while octets:
        count = rng.choice([4, 64, flow.smss, rng.randint(1, flow.smss // 4) * 4])
        count = min(count, octets, flow.smss, bench.granted(flow) - len(flow.sent))
        if count <= 0 or bench.device.beats:
            await bench.cycles(20)
            continue
        fpdu = rng.randbytes(count)
        octets -= count
        flow.sent += fpdu
        bench.device.fpdu(flow.lane or 0, fpdu, close=close and not octets)


async def peer_says(bench: Bench, flow: Flow, octets: int) -> None:
    rng = bench.rng
    while octets:
        count = min(rng.randint(1, 4000), octets)
        octets -= count
        bench.says(flow, rng.randbytes(count))
        await bench.cycles(rng.choice([1, 200, 2000]))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_a_stream_both_ways(dut: Any) -> None:
    """First of the driver, then of the device."""
    bench = await start(dut)
    flow = await bench.establish(1)
    bench.send(flow, bench.rng.randbytes(100))
    bench.says(flow, bench.rng.randbytes(200))
    await bench.until(lambda: len(flow.read) == 200 and len(flow.heard) == 100)
    assert flow.read == flow.said and flow.heard == flow.sent
    await bench.attach(flow, 0)
    talk = cocotb.start_soon(peer_says(bench, flow, 5000))
    await device_sends(bench, flow, 5000)
    await talk
    await bench.until(lambda: bool(flow.ended))
    assert flow.heard == flow.sent
    assert bench.heard(flow) == flow.said
    assert flow.ended == "TIME_WAIT"
    await bench.detach(flow)
    await bench.forget(flow)


@pytest.fixture(scope="module", params=SIZES)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    qps, mtu = map(int, request.param.split())
    block = TcpEngine(RnicConfig(qps=qps), mtu)
    return simulate(tmp_path_factory, block, __name__, request.param, SIZES)


@each_check(globals())
def test_engine(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
