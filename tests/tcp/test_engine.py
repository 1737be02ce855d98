"""The engine carries streams both ways, tells the driver of the rest, and forgets what ended."""

from typing import Any

import cocotb
import pytest

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ethernet.layouts import FrameFate
from stagecoach.gateware.tcp.engine import TcpEngine
from stagecoach.gateware.tcp.layouts import TransmitOperation
from stagecoach.hw.interface.network_entries import InfoFlags
from stagecoach.sim.model.tcp.congestion import initial_window
from stagecoach.sim.model.tcp.segment import Flags
from stagecoach.sim.model.tcp.state import State
from tests.support.verdicts import Verdicts, each_check, simulate
from tests.tcp.engine_bench import RING, WINDOW, Bench, Flow, start
from tests.tcp.frames import ARP, MAC, PEER
from tests.tcp.receive_reference import SPACE

FAST = False  # the whole engine

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
        await bench.cycles(rng.choice([1, 100, 500]))


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
    # The device reads the last octets when it comes to them, which may be after the end.
    await bench.until(lambda: bool(flow.ended) and len(bench.heard(flow)) == len(flow.said))
    assert flow.heard == flow.sent
    assert bench.heard(flow) == flow.said
    assert flow.ended == "TIME_WAIT"
    await bench.detach(flow)
    await bench.forget(flow)


async def ends(bench: Bench, flow: Flow) -> None:
    """It is told, and all octets came."""
    await bench.until(lambda: bool(flow.ended))
    await bench.cycles(500)
    bench.reads(flow)
    assert flow.heard == flow.sent
    assert bench.heard(flow) == flow.said


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def check_streams_through_a_wire_that_loses(dut: Any) -> None:
    """Of the driver and of the device, in all orders of their ends; and frames of the driver."""
    bench = await start(dut, SPACE - 3000)
    bench.lost = 0.04
    dut.fate_read.value = FrameFate.FULL.value
    rng = bench.rng
    last = bench.connections - 1
    some = [0, last] if last < 8 else [0, 3, last // 2, last]
    flows = [await bench.establish(number, sack=number != 3) for number in some]
    talks = []
    for flow in flows:
        bench.send(flow, rng.randbytes(rng.randint(1, 3000)))
        bench.says(flow, rng.randbytes(rng.randint(1, 3000)))
        if flow.number != 0:
            await bench.attach(flow, last - flow.number)
            talks.append(cocotb.start_soon(device_sends(bench, flow, 3000, close=False)))
        talks.append(cocotb.start_soon(peer_says(bench, flow, 4000)))
    sent = []
    for _ in range(10):
        bench.put_arp()
        sent.append((PEER + MAC + ARP + rng.randbytes(rng.randint(1, 500))).ljust(60, b"\0"))
        bench.driver.send(sent[-1])
        bench.send(flows[0], rng.randbytes(rng.randint(1, 800)))
        await bench.cycles(800)
    for talk in talks:
        await talk
    assert bench.raw == sent
    for flow in flows:
        # The peer's program closes when it has read the end, and may do so before.
        if flow.number == last:
            flow.peer.close(bench.now)
            bench.reads(flow)
            await bench.until(lambda flow=flow: bench.device.closed(flow.lane))
        if flow.lane is None:
            bench.command(flow, TransmitOperation.FINISH)
        else:
            bench.device.fpdu(flow.lane, b"", close=True)
    for flow in flows:
        await ends(bench, flow)
    assert [flow.ended for flow in flows] == ["TIME_WAIT"] * (len(flows) - 1) + ["CLOSED"]
    assert all(flow.fin for flow in flows)
    # Bursts of the peers fill the store.
    full = int(dut.value.value)
    assert 10 - full <= bench.seen["arp"] + bench.driver.dropped <= 10 and bench.seen["arp"]
    assert bench.seen["lost"]
    await bench.cycles(3000)
    assert any(flow.segments["segments_again"] for flow in flows)
    for flow in flows:
        await bench.check_counts(flow, lost=full)
        if flow.lane is not None:
            await bench.detach(flow)
        await bench.forget(flow)


async def end(bench: Bench, flow: Flow, how: str) -> str:
    """Something ends it, in the middle of what it does; what the driver is told."""
    if how == "abort":
        bench.command(flow, TransmitOperation.ABORT)
        return "ABORTED"
    if how == "reset":
        flow.peer.abort(bench.now)
        bench.reads(flow)
        return "RESET"
    ring = flow.receive_address if how == "receive ring" else flow.send_address
    bench.memory.failing = range(ring, ring + RING)
    return "MEMORY"


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def check_a_number_is_used_again(dut: Any) -> None:
    """At once, with other rings, whatever was under way of it; another one goes on."""
    bench = await start(dut)
    rng = bench.rng
    other = await bench.establish(0)
    number = bench.connections - 1
    hows = ["abort", "reset", "receive ring", "send ring"] * 2
    for turn, how in enumerate(rng.sample(hows, len(hows))):
        bench.axi._write_latency = rng.choice([20, 1000])
        flow = await bench.establish(number)
        bench.send(flow, rng.randbytes(500))
        if turn % 2:
            await bench.attach(flow, 1)
        await bench.cycles(rng.randrange(2000))
        bench.says(flow, rng.randbytes(6000))
        for _ in range(6):
            count = min(400, bench.granted(flow) - len(flow.sent)) if turn % 2 else 400
            if turn % 2 and count > 0:
                flow.sent += bytes(count)
                bench.device.fpdu(1, bytes(count))
            elif count > 0:
                bench.send(flow, rng.randbytes(count))
        await bench.cycles(rng.randrange(600))
        cause = await end(bench, flow, how)
        while not flow.ended:
            bench.says(other, rng.randbytes(50))
            if flow.peer.state is not State.CLOSED:
                bench.says(flow, rng.randbytes(50))
            await bench.cycles(600)
        assert flow.ended == cause, how
        if turn % 2:
            await bench.detach(flow)
        await bench.forget(flow)
        bench.memory.failing = range(0)
    await bench.until(lambda: len(other.read) == len(other.said))
    assert other.read == other.said


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_what_info_tells(dut: Any) -> None:
    """Of a connection that has sent and received; and of one that has ended."""
    bench = await start(dut)
    flow = await bench.establish(1)
    # The window that is announced with the first segment: all of the ring.
    assert (await bench.info(flow))["edge"] == (flow.their_first + RING) % SPACE
    bench.send(flow, bench.rng.randbytes(1000))
    bench.says(flow, bench.rng.randbytes(700))
    await bench.until(lambda: len(flow.heard) == 1000 and len(flow.read) == 700)
    await bench.until(lambda: flow.peer.queued == 0)
    await bench.cycles(3000)
    info = await bench.info(flow)
    end = (flow.first + 1000) % SPACE
    assert info["una"] == info["next"] == info["max"] == info["end"] == end
    assert info["emss"] == flow.smss and info["received"] == (flow.their_first + 700) % SPACE
    assert info["flags"] == InfoFlags.ALIVE | InfoFlags.SAMPLED
    assert WINDOW < info["window"] <= flow.peer.settings.receive_buffer
    # Less than at first, if the peer's ACK was later than the timeout.
    assert flow.smss < info["cwnd"] <= initial_window(flow.smss) + 1000
    assert info["rto"] >= 1000 and info["srtt8"] and info["rttvar4"]
    assert (info["edge"] - info["received"]) % SPACE <= RING
    assert (info["edge"] - flow.their_first) % SPACE >= WINDOW
    await bench.check_counts(flow)
    await bench.attach(flow, 0)
    attached = await bench.info(flow)
    assert attached["flags"] == info["flags"] | InfoFlags.ATTACHED
    flow.peer.close(bench.now)
    bench.reads(flow)
    await bench.until(lambda: bench.device.closed(0))
    await bench.cycles(100)
    closed = await bench.info(flow)
    assert closed["flags"] == attached["flags"] | InfoFlags.PEER_FIN
    assert closed["received"] == (info["received"] + 1) % SPACE
    bench.command(flow, TransmitOperation.FINISH)
    await bench.until(lambda: bool(flow.ended))
    ended = await bench.info(flow)
    assert ended["flags"] == (
        InfoFlags.ATTACHED
        | InfoFlags.CLOSING
        | InfoFlags.FIN_ACKNOWLEDGED
        | InfoFlags.PEER_FIN
        | InfoFlags.SAMPLED
    )
    assert ended["max"] == (end + 1) % SPACE


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_a_driver_that_takes_nothing(dut: Any) -> None:
    """Its frames are dropped, notices wait, and streams of the device go on."""
    bench = await start(dut)
    flow, other = [await bench.establish(number) for number in (0, 1)]
    await bench.attach(flow, 0)
    bench.driver.reads = False
    for _ in range(50):
        bench.put_arp()
    bench.says(other, bench.rng.randbytes(300))
    await bench.until(lambda: not bench.wire.frames and bench.driver.dropped > 10)
    other.peer.abort(bench.now)
    bench.reads(other)
    talk = cocotb.start_soon(peer_says(bench, flow, 5000))
    await device_sends(bench, flow, 5000, close=False)
    await talk
    await bench.until(lambda: bench.heard(flow) == flow.said and len(flow.heard) == 5000)
    assert not other.ended and not other.read
    # Nothing of the driver is waited for by who forgets a connection, either.
    await bench.fence()
    bench.driver.reads = True
    await bench.until(lambda: bool(other.ended))
    assert other.ended == "RESET"
    await bench.cycles(3000)
    bench.arp.clear()
    bench.put_arp()
    await bench.until(lambda: not bench.arp)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_memory_that_stops(dut: Any) -> None:
    """The wire is not held up, nor are commands; all goes on when it does."""
    bench = await start(dut)
    flow, other = [await bench.establish(number) for number in (0, 1)]
    await bench.attach(flow, 0)
    dut.fate_read.value = FrameFate.FULL.value
    bench.axi.stopped = True
    talks = [cocotb.start_soon(peer_says(bench, each, 12_000)) for each in (flow, other)]
    await device_sends(bench, flow, 2000, close=False)
    # What is in the store leaves: the ring is for those that go again.
    await bench.until(lambda: bool(flow.heard))
    await bench.until(lambda: bool(dut.value.value))
    assert not bench.device.received[0] and dut.rx__tready.value
    bench.start_fence()
    await bench.cycles(3)
    dut.fence_start.value = 0
    await bench.cycles(1000)
    assert dut.fence_busy.value
    bench.axi.stopped = False
    await bench.until(lambda: not dut.fence_busy.value)
    for talk in talks:
        await talk
    await bench.until(lambda: bench.heard(flow) == flow.said and other.read == other.said)
    await bench.until(lambda: flow.heard == flow.sent)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_a_mac_that_stops(dut: Any) -> None:
    """What is received goes on until the windows end, also for the driver."""
    bench = await start(dut)
    flow, other = [await bench.establish(number) for number in (0, 1)]
    await bench.attach(flow, 0)
    await bench.cycles(2000)
    bench.takes = False
    bench.says(flow, bench.rng.randbytes(1000))
    bench.says(other, bench.rng.randbytes(1000))
    await device_sends(bench, flow, 1000, close=False)
    bench.put_arp()
    await bench.until(lambda: bench.heard(flow) == flow.said and other.read == other.said)
    await bench.until(lambda: not bench.arp)
    bench.start_fence()
    await bench.cycles(3)
    dut.fence_start.value = 0
    await bench.cycles(1000)
    assert dut.fence_busy.value and not flow.heard
    bench.takes = True
    await bench.until(lambda: not dut.fence_busy.value)
    await bench.until(lambda: flow.heard == flow.sent)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_a_device_that_takes_no_answer(dut: Any) -> None:
    """It waits alone."""
    bench = await start(dut)
    flow, other = [await bench.establish(number) for number in (0, 1)]
    await bench.attach(flow, 0)
    bench.device.takes_answers = False
    bench.says(flow, bench.rng.randbytes(8000))
    await peer_says(bench, other, 4000)
    bench.send(other, bench.rng.randbytes(2000))
    await device_sends(bench, flow, 2000, close=False)
    await bench.until(lambda: other.read == other.said and other.heard == other.sent)
    await bench.until(lambda: flow.heard == flow.sent)
    assert not bench.device.received[0]
    bench.device.takes_answers = True
    await bench.until(lambda: bench.heard(flow) == flow.said)


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_a_segment_that_came_before(dut: Any) -> None:
    """The driver has placed its octets; it is READABLE, and acknowledged."""
    bench = await start(dut)
    flow = await bench.establish(1)
    octets = bench.rng.randbytes(300)
    # The peer sends it, and the wire brings it before the engine has the connection.
    bench.lost = 1.0
    bench.says(flow, octets)
    bench.lost = 0.0
    place = flow.their_first % RING
    for number, octet in enumerate(octets, place):
        flow.receive_ring[number % RING] = octet
    segment = {"sequence": flow.their_first, "acknowledgment": flow.first, "window": 0x3FFF}
    segment |= {"payload": len(octets), "flags": int(Flags.ACK | Flags.PSH)}
    await bench.placed.send({"connection": 1, "segment": segment})
    await bench.until(lambda: flow.read == octets)
    await bench.until(lambda: flow.peer.queued == 0)


@pytest.fixture(scope="module", params=SIZES)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    qps, mtu = map(int, request.param.split())
    block = TcpEngine(RnicConfig(qps=qps), mtu)
    return simulate(tmp_path_factory, block, __name__, request.param, SIZES)


@each_check(globals())
def test_engine(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
