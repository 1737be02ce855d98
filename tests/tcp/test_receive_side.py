"""What comes by the wire is at the LLP port, in order, whole and once; the reference TCP agrees."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ethernet.layouts import FrameFate
from stagecoach.gateware.tcp.layouts import ReceiveOperation
from stagecoach.gateware.tcp.receive_side import ReceiveSide
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model.tcp.segment import Flags
from tests.support.runner import parameter
from tests.support.verdicts import Verdicts, each_check, simulate
from tests.tcp.frames import ARP, MAC, MTU, PEER, NotJudgedError, broken, fate_of
from tests.tcp.receive_side_bench import RING, Bench

FAST = False  # much of the engine, whose blocks have tests of their own

SIZES = {"2 576": 8192, "64 1500": 8192, "256 9000": 32_768}
"""Connections and MTU, and octets of the store."""

BUDGET = 230
"""Of cycles from the last octet of a full frame to RX_AVAILABLE, beside what memory takes."""


PAUSE = 600
"""Cycles between commands while bare ACKs come: each of those leaves them half a cycle."""

WINDOW = 60_000
"""Octets that come on each of two connections in full frames: no window ends before."""

STORED = 40
"""Cycles from the fate of a frame until its job waits for `ReceiveRing`, and somewhat more."""

AFTER_LAST = 100
"""Cycles from the beginning of the last bare ACK to its event, and somewhat more."""


def sizes(pattern: str) -> tuple[RnicConfig, int]:
    qps, mtu = map(int, pattern.split())
    return RnicConfig(qps=qps), mtu


async def start(dut: Any) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern), *sizes(pattern))
    await bench.start()
    return bench


def raw_frame(bench: Bench) -> bytes:
    return MAC + PEER + ARP + bench.rng.randbytes(bench.rng.randrange(46, 200))


def put_anything(bench: Bench, some: list[int]) -> None:
    """A segment of any kind, once, twice, or with something wrong; or a frame of nobody."""
    rng, number = bench.rng, bench.rng.choice(some)
    connection = bench.connections[number]
    kind = rng.random()
    if kind < 0.1:
        bench.wire.append(raw_frame(bench))
        return
    if kind < 0.5:
        # Whatever the reference knows when it is sent: in order, or not.
        position = connection.known.receiver.next + rng.choice([0, 0, 0, 1, 700, 1400])
        octets = rng.choice([0, 1, rng.randint(1, 100), rng.randint(1, bench.mtu - 40)])
        frame = bench.in_order(number, octets, position)
    else:
        frame = bench.put(number, connection.known.segment()[0])
    if rng.random() < 0.1:
        bench.wire.append(frame)
    if rng.random() < 0.2 and len(frame) <= MTU + 14:
        wrong = broken(rng, frame)
        try:
            fate_of(wrong, bench.mtu)
        except NotJudgedError:
            return
        bench.wire.append(wrong)


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_streams_are_whole_whatever_comes(dut: Any) -> None:
    """Out of order, twice, corrupted; before and after a stream is attached, and its end."""
    bench = await start(dut)
    rng, qps = bench.rng, bench.config.qps
    some = sorted({0, 1, qps // 2, qps - 1})
    lanes = {number: qps - 1 - number for number in some}
    for number in some:
        await bench.begin(number, lanes[number] if number % 2 else None)
    for _ in range(30):
        for _ in range(rng.randrange(25)):
            put_anything(bench, some)
            if rng.random() < 0.1:
                await bench.cycles(rng.choice([20, 300]))
        if rng.random() < 0.3:
            bench.write.words.paused = True
            await bench.cycles(rng.randrange(200))
            bench.write.words.paused = False
        await bench.quiet()
        for number in some:
            connection = bench.connections[number]
            assert await bench.blocks(number) == connection.known.receiver.blocks()
            if connection.dead or connection.closed:
                await bench.end(number)
                bench.put(number, connection.known.segment()[0])
                await bench.quiet()
                await bench.delete(number)
                bench.put(number, connection.known.segment()[0])
                await bench.quiet()
                await bench.begin(number, lanes[number] if rng.random() < 0.5 else None)
            elif connection.lane is None and rng.random() < 0.3:
                await bench.attach(number, lanes[number])
            await bench.release(number)
        await bench.quiet()
    await bench.check_rest()
    kept = bench.fates[FrameFate.SEGMENT], bench.fates[FrameFate.RAW]
    assert bench.urgent
    assert all(kept) and len(bench.fates) >= 6, bench.fates


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_a_slow_memory_costs_frames_and_nothing_else(dut: Any) -> None:
    """What finds no room is FULL; it is sent again, and the streams are whole."""
    bench = await start(dut)
    rng = bench.rng
    for number in (0, 1):
        await bench.begin(number, 1 - number)
    # It takes half of what comes: the rest would fill the store.
    bench.write.words.set_pattern("random", rng)
    at_once = 3 * SIZES[parameter("PATTERN")] // 2
    goal = 2 * at_once
    sent = {0: 0, 1: 0}
    while any(bench.connections[number].known.receiver.next < goal for number in sent):
        for number in sent:
            # From the first octet that is missing on, and further.
            known = bench.connections[number].known
            position = known.receiver.next
            while position < min(known.receiver.next + at_once, goal):
                octets = min(rng.randint(200, bench.mtu - 40), goal - position)
                bench.in_order(number, octets, position)
                position += octets
        await bench.quiet()
    assert bench.fates[FrameFate.FULL]
    await bench.check_rest()


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_bare_acks_at_the_rate_of_the_wire(dut: Any) -> None:
    """One in 10.5 cycles: none is dropped, and nothing piles up; commands and releases between."""
    bench = await start(dut)
    bench.events.set_pattern("always")
    some = [0, bench.config.qps - 1]
    for number in some:
        await bench.begin(number, number)
    await bench.quiet()
    count, first = 2000, bench.cycle
    for number in range(count):
        bench.in_order(some[number % 2], 0)
    stranger = bench.connections[0].key | {"remote": 0}
    while bench.wire:
        await RisingEdge(dut.clk)
        if not bench.cycle % PAUSE:
            bench.lookups.put({"delete": 1, "key": stranger})
            bench.releases.put({"connection": some[0], "relative": 1})
    assert 10.4 * count < bench.cycle - first < 10.6 * count
    await bench.cycles(AFTER_LAST)
    assert not bench.expected_events and not bench.judged
    assert bench.fates == {FrameFate.SEGMENT: count}
    await bench.check_rest()


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_full_frames_at_the_rate_of_the_wire(dut: Any) -> None:
    """Each one is released, so the window moves: none is dropped, and nothing piles up."""
    bench = await start(dut)
    bench.write.delays = [0]
    for sink in (bench.write.words, bench.events, bench.notes, bench.llp_events):
        sink.set_pattern("always")
    some, octets = (0, bench.config.qps - 1), bench.mtu - 40
    for number in some:
        await bench.begin(number, None)
    await bench.quiet()
    count = WINDOW // octets
    for index in range(count):
        for number in some:
            bench.in_order(number, octets, index * octets)
    released = 0
    cycles = dict.fromkeys(("octets", "stored"), 0)  # of the last ones

    async def watch() -> None:
        while True:
            await RisingEdge(dut.clk)
            if dut.rx__tvalid.value:
                cycles["octets"] = bench.cycle
            if dut.write__data__valid.value and dut.write__data__ready.value:
                cycles["stored"] = bench.cycle

    cocotb.start_soon(watch())
    while bench.wire or bench.medium.sends or bench.judged:
        # Of the frame before, which is stored.
        kept = bench.fates[FrameFate.SEGMENT]
        if kept > released + 1:
            await bench.cycles(STORED)
            number = some[released % 2]
            bench.expect(number, bench.connections[number].known.release(octets))
            bench.releases.put({"connection": number, "relative": 1, "value": octets})
            released += 1
        await RisingEdge(dut.clk)
    await bench.quiet()
    assert bench.fates == {FrameFate.SEGMENT: 2 * count}
    # The front, the lookup, the processor, and the words.
    assert cycles["stored"] - cycles["octets"] <= 35 + -(-(octets + 54) // 8)
    await bench.check_rest()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_time_from_the_wire_to_the_device(dut: Any) -> None:
    """Of a full frame of 1,500 octets, or of a smaller MTU."""
    bench = await start(dut)
    bench.write.delays = [0]
    bench.write.words.set_pattern("always")
    await bench.begin(1, 1)
    await bench.quiet()
    bench.in_order(1, min(bench.mtu, 1500) - 40)
    times: dict[str, int] = {}
    while "event" not in times:
        await RisingEdge(dut.clk)
        for name, is_there in (
            ("wire", dut.rx__tvalid.value and dut.rx__tlast.value),
            ("word", dut.write__data__valid.value and dut.write__data__ready.value),
            ("done", dut.write__done.value),
            ("event", dut.llp_event__valid.value),
        ):
            if is_there:
                times[name] = bench.cycle
    memory = times["done"] - times["word"]
    spent = times["event"] - times["wire"] - memory
    dut._log.info("from the last octet to RX_AVAILABLE: %d cycles, and %d of memory", spent, memory)
    assert spent <= BUDGET
    await bench.check_rest()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_the_driver_has_placed_and_what_nobody_reads(dut: Any) -> None:
    """A segment that came before counts as one of the wire; after DISCARD data ends it."""
    bench = await start(dut)
    connection = await bench.begin(1, 1)
    known = connection.known
    segment, position = known.segment_at(0, 100, Flags.ACK | Flags.URG)
    bench.expected_urgent += 1
    for number, octet in enumerate(segment.payload, position):
        at = known.number(number) % known.ring
        bench.write.memory.write(bench.ring(1) + at, bytes([octet]))
    fields = {
        "payload": len(segment.payload),
        "sequence": segment.sequence,
        "acknowledgment": segment.acknowledgment,
        "flags": int(segment.flags),
        "window": segment.window,
        # These do not count.
        "raw": 1,
        "header": 77,
    }
    bench.arrives(1, segment)
    await bench.placed.send({"connection": 1, "segment": fields})
    await bench.quiet()
    bench.in_order(1, 300)
    await bench.quiet()
    bench.commands.put({"operation": ReceiveOperation.DISCARD.value, "connection": 1})
    await bench.commands.wait_idle()
    known.record.discarding = True
    bench.in_order(1, 300)
    await bench.quiet()
    assert connection.dead
    await bench.check_rest()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_stream_that_has_ended_is_attached(dut: Any) -> None:
    """All of it is read, though its end is said, too."""
    bench = await start(dut)
    known = (await bench.begin(1, None)).known
    bench.in_order(1, 500)
    bench.put(1, known.segment_at(500, 36, Flags.ACK | Flags.FIN)[0])
    await bench.quiet()
    assert bench.connections[1].closed
    await bench.attach(1, 0)
    await bench.check_rest()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_memory_refuses_is_told(dut: Any) -> None:
    """What cannot be read to the driver, what cannot be written to the sending side, too."""
    bench = await start(dut)
    for number in (0, 1):
        await bench.begin(number, 1 - number)
        bench.in_order(number, 400)
        await bench.quiet()
    address = bench.ring(1) + bench.connections[1].known.number(400) % RING
    bench.read.bad = {address // 8 * 8}
    for number in (0, 1):
        bench.in_order(number, 100)
    await bench.quiet()
    assert bench.failed.take_all() == [1]
    bench.failing = {0}
    bench.write.failing = range(bench.ring(0), bench.ring(0) + RING)
    for number in (0, 1):
        bench.in_order(number, 100)
    await bench.quiet()
    assert bench.connections[0].closed and not bench.connections[1].closed
    await bench.check_rest()


@pytest.fixture(scope="module", params=SIZES)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    block = ReceiveSide(*sizes(request.param), store_octets=SIZES[request.param])
    return simulate(tmp_path_factory, block, __name__, request.param, (request.param,))


@each_check(globals())
def test_receive_side(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
