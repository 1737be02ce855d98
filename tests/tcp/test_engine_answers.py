"""An engine that answers ARP and echo requests, beside a connection, and while nobody else does."""

from typing import Any

import cocotb
import pytest

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.tcp.engine import TcpEngine
from stagecoach.sim.cosim.signals import every_cycle
from stagecoach.sim.cosim.streams import seeded_random
from tests.ip.arp_and_echo import HERE, answer_to, arp_request, echo_request
from tests.support.runner import parameter
from tests.support.verdicts import Verdicts, each_check, simulate
from tests.tcp.engine_bench import Bench
from tests.tcp.frames import MAC, PEER

FAST = False  # the whole engine

QPS, MTU = 2, 1500
SIZES = (f"{QPS} {MTU}",)
IPV4_ICMP = 23
"""Octet of a frame that has the protocol."""


class AnswerBench(Bench):
    """Answers to echo requests are no segments."""

    def __init__(self, dut: Any) -> None:
        rng = seeded_random(parameter("PATTERN"))
        super().__init__(dut, rng, RnicConfig(qps=QPS, answers=True), MTU)
        self.answered = self.unanswered = 0
        dut.address.value = int(HERE)
        dut.answer.value = 1
        every_cycle(dut, self._count)

    def _count(self, in_reset: bool) -> None:
        if not in_reset:
            self.answered += int(self.dut.answered.value)
            self.unanswered += int(self.dut.unanswered.value)

    def _leaves(self, frame: bytes) -> None:
        if frame[12:14] == b"\x08\x00" and frame[IPV4_ICMP] == 1:
            self.raw.append(frame)
        else:
            super()._leaves(frame)

    def asks(self, request: bytes) -> bytes:
        """It comes; the frame that has to leave."""
        self.wire.frames.append(request)
        answer = answer_to(request)
        assert answer is not None
        return answer.ljust(60, b"\0")


async def start(dut: Any) -> AnswerBench:
    bench = AnswerBench(dut)
    await bench.start()
    return bench


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_requests_beside_a_connection(dut: Any) -> None:
    """Each is answered once, by the engine; the driver gets what is no request."""
    bench = await start(dut)
    rng = bench.rng
    flow = await bench.establish(1)
    bench.send(flow, rng.randbytes(3000))
    expected = []
    for number in range(12):
        bench.says(flow, rng.randbytes(700))
        octets = rng.choice([0, 56, rng.randrange(1473)])
        request = arp_request() if number % 3 == 0 else echo_request(rng.randbytes(octets))
        expected.append(bench.asks(request))
        await bench.cycles(400)
    reply = arp_request(operation=2)
    bench.arp.append(reply)
    bench.wire.frames.append(reply)
    await bench.until(lambda: len(bench.raw) >= len(expected) and not bench.arp)
    await bench.until(lambda: flow.read == flow.said and flow.heard == flow.sent)
    await bench.cycles(200)
    assert bench.raw == expected
    assert (bench.answered, bench.unanswered) == (len(expected), 0)
    assert bench.driver.frames == [reply]


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_a_driver_that_sleeps(dut: Any) -> None:
    """Its rings are full, and memory takes no frame: requests are answered, and it has none."""
    bench = await start(dut)
    bench.driver.reads = False
    flow = await bench.establish(1)
    for _ in range(2 << bench.driver.log2):
        bench.wire.frames.append(arp_request(operation=2))
    await bench.until(lambda: not bench.wire.frames and bench.driver.dropped > 0)
    expected = []
    for number in range(6):
        expected.append(bench.asks(echo_request(bytes(100 * number))))
        bench.says(flow, bench.rng.randbytes(1000))
        await bench.cycles(600)
    await bench.until(lambda: len(bench.raw) == len(expected))
    assert bench.raw == expected
    # What the peer says is acknowledged, though nobody is there to read it.
    await bench.until(lambda: flow.peer.queued == 0)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_a_mac_that_takes_nothing(dut: Any) -> None:
    """Two requests wait, all others are dropped, and segments come; then all go on."""
    bench = await start(dut)
    flow = await bench.establish(1)
    bench.takes = False
    await bench.cycles(5)
    waiting = [bench.asks(echo_request(bytes([number]) * 1000)) for number in range(9)]
    bench.says(flow, bench.rng.randbytes(2000))
    await bench.until(lambda: flow.read == flow.said)
    assert bench.unanswered == len(waiting) - 2 and not bench.raw
    bench.takes = True
    await bench.until(lambda: len(bench.raw) == 2)
    assert bench.raw == waiting[:2]
    await bench.until(lambda: flow.peer.queued == 0)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_all_sources_of_frames_get_their_turn(dut: Any) -> None:
    """A flood of requests, frames of the driver, and segments leave side by side."""
    bench = await start(dut)
    flow = await bench.establish(1)
    flood = [bench.asks(echo_request(bytes(1400))) for _ in range(40)]
    own = [PEER + MAC + b"\x08\x06" + bytes([number]) * 1400 for number in range(8)]
    for frame in own:
        bench.driver.send(frame)
    bench.send(flow, bench.rng.randbytes(16_000))
    await bench.until(lambda: flow.heard == flow.sent)
    await bench.until(lambda: not bench.wire.frames)
    await bench.until(lambda: bench.answered + bench.unanswered == len(flood))
    await bench.until(lambda: [frame for frame in bench.raw if frame in own] == own)
    assert bench.answered >= len(flood) // 3


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_the_driver_answers_while_it_is_disabled(dut: Any) -> None:
    bench = await start(dut)
    dut.answer.value = 0
    await bench.cycles(3)
    request = arp_request()
    bench.arp.append(request)
    bench.wire.frames.append(request)
    await bench.until(lambda: bench.driver.frames == [request])
    assert not bench.answered and not bench.raw


@pytest.fixture(scope="module", params=SIZES)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    block = TcpEngine(RnicConfig(qps=QPS, answers=True), MTU)
    return simulate(tmp_path_factory, block, __name__, request.param, SIZES)


@each_check(globals())
def test_engine_answers(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
