"""The RDMAP receiver is as fast as it says, for each kind of segment in a backlog."""

from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.rdmap.receive.receiver import Receiver
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from stagecoach.sim.model.rdmap import Opcode
from tests.rdmap.receive import segments
from tests.rdmap.receive.bench import Bench
from tests.rdmap.receive.model import CONFIG, AtomicSink, stag_with
from tests.support.runner import run_cocotb

MESSAGES = 4
FIRST_PLACEMENT = 10
"""Cycles from a segment of an RDMA Write to its placement."""


def test_receiver() -> None:
    run_cocotb(Receiver(CONFIG), __name__)


class _Watch:
    """The cycles in which segments are taken, placed and ended."""

    def __init__(self, dut: Any, bench: Bench) -> None:
        self.cycle = 0
        self.ends: list[int] = []
        self.begins: list[int] = []
        self.placements: list[int] = []
        self._dut, self._bench = dut, bench
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        dut = self._dut
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            # The transmitter answers at once.
            self._bench.inbound = [0] * CONFIG.qps
            if dut.begin.value:
                self.begins.append(self.cycle)
            if dut.end.value:
                self.ends.append(self.cycle)
            if dut.placement__valid.value:
                self.placements.append(self.cycle)


Send = Callable[[Bench, int], None]
"""Queues message number n, from 1, of QP 1, which is new."""


def a_write(octets: int) -> Send:
    return lambda bench, n: bench.send(1, segments.write(bench.rng, octets))


def a_send(*lengths: int, octets: int, opcode: int = Opcode.SEND) -> Send:
    def send(bench: Bench, n: int) -> None:
        bench.post(1, segments.elements(bench.rng, *lengths))
        header = segments.opcode(opcode, rsvd_ulp_word=stag_with(bench.rng))
        bench.send(1, segments.send(n, 0, octets, **header))

    return send


def an_immediate(bench: Bench, n: int) -> None:
    bench.post(1, [])
    bench.send(1, segments.immediate(bench.rng, n))


def a_request(make: Callable[[Any, int], bytes]) -> Send:
    def send(bench: Bench, n: int) -> None:
        bench.send(1, make(bench.rng, n))
        bench.answer_reads(1)

    return send


def a_response(octets: int) -> Send:
    def send(bench: Bench, n: int) -> None:
        stag, to = stag_with(bench.rng), bench.rng.getrandbits(64)
        bench.expect_read(1, stag, to, octets)
        bench.send(1, segments.response(stag, to, octets, True))

    return send


def an_atomic_response(bench: Bench, n: int) -> None:
    sink = AtomicSink(stag_with(bench.rng), bench.rng.getrandbits(64), n)
    request = bench.expect_atomic(1, sink)
    bench.send(1, segments.atomic_response(bench.rng, request.identifier))


KINDS: dict[str, tuple[Send, int]] = {
    "Write of 0": (a_write(0), 4),
    "Write of 64": (a_write(64), 8),
    "Send of 0": (a_send(64, octets=0), 7),
    "Send of 8": (a_send(64, octets=8), 10),
    "Send over 2 elements": (a_send(4, 4, octets=8), 17),
    "Send over 4 elements": (a_send(2, 2, 2, 2, octets=8), 33),
    "Send with Invalidate": (a_send(64, octets=8, opcode=Opcode.SEND_WITH_INVALIDATE), 19),
    "Immediate Data": (an_immediate, 7),
    "Read Request of 0": (a_request(lambda rng, n: segments.read_request(rng, n, 0)), 6),
    "Read Request": (a_request(lambda rng, n: segments.read_request(rng, n, 8)), 10),
    "Atomic Request": (a_request(segments.atomic_request), 10),
    "Read Response of 0": (a_response(0), 8),
    "Read Response": (a_response(8), 9),
    "Atomic Response": (an_atomic_response, 9),
}
"""Each kind with the cycles of a segment."""


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cycles_of_every_kind(dut: Any) -> None:
    bench = Bench(dut, seeded_random(), "always")
    await start_clock_and_reset(dut)
    watch = _Watch(dut, bench)
    others = {}
    for kind, (send, expected) in KINDS.items():
        await bench.connect(1)
        watch.ends.clear()
        for n in range(1, MESSAGES + 1):
            send(bench, n)
        assert not bench.model.qps[1].stopped, kind
        await bench.settle()
        gaps = [after - before for before, after in zip(watch.ends, watch.ends[1:], strict=False)]
        if max(gaps) != expected:
            others[kind] = max(gaps)
    assert not others


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_first_placement_comes_soon(dut: Any) -> None:
    bench = Bench(dut, seeded_random(), "always")
    await start_clock_and_reset(dut)
    watch = _Watch(dut, bench)
    await bench.connect(1)
    bench.send(1, segments.write(bench.rng, 64))
    await bench.settle()
    assert watch.placements[0] - watch.begins[0] == FIRST_PLACEMENT
