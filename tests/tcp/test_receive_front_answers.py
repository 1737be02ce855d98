"""A receive front that answers requests: nobody else gets them, and all else goes as before."""

from typing import Any

import cocotb
import pytest

from stagecoach.gateware.ethernet.layouts import FRAME_BEAT, FrameFate
from stagecoach.gateware.tcp.receive_front import ReceiveFront
from stagecoach.sim.cosim.signals import cycles, every_cycle
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    seeded_random,
    start_clock_and_reset,
)
from stagecoach.sim.model.tcp.checksum import checksum
from tests.ip.arp_and_echo import (
    CAPTURED_ARP,
    HERE,
    answer_to,
    arp_request,
    echo_message,
    echo_request,
    no_requests,
    random_request,
)
from tests.support.runner import parameter
from tests.support.verdicts import Verdicts, each_check, shows, simulate
from tests.tcp.frames import MTU, NotJudgedError, broken, fate_of, random_frame
from tests.tcp.test_receive_front import PATTERNS, STORE, Bench, check

LATENCY = 17


class AnswerBench(Bench):
    """With a MAC that takes answers."""

    def __init__(self, dut: Any, pattern: str) -> None:
        super().__init__(dut, seeded_random(pattern), pattern)
        self.answers = StreamSink(dut, "answers__frame", FRAME_BEAT, rng=self.rng, pattern=pattern)
        StreamMonitor(dut, "answers__frame", FRAME_BEAT, keep=False)
        self.answered = self.dropped = 0
        dut.answers__address.value = int(HERE)
        dut.answers__enable.value = 1
        every_cycle(dut, self._count)

    def _count(self, in_reset: bool) -> None:
        if not in_reset:
            self.answered += int(self.dut.answers__answered.value)
            self.dropped += int(self.dut.answers__dropped.value)
            if self.dut.answers__frame__valid.value:
                self.first_seen.setdefault("answer", self.cycle)

    async def answer(self) -> bytes:
        """The next one."""
        beats = await self.answers.get_until("last")
        parts = [beat["data"].to_bytes(8, "little")[: beat["octets"]] for beat in beats]
        return b"".join(parts)

    async def asks(self, request: bytes) -> None:
        """It is answered, and that is all."""
        self.put(request)
        assert await self.judged(1) == [FrameFate.RAW]
        answer, expected = await self.answer(), answer_to(request)
        assert expected is not None
        if answer[12:14] == b"\x08\x00":
            # Of the two zeros of a checksum, any is right.
            assert checksum(echo_message(answer)) == 0
            answer, expected = answer[:36] + answer[38:], expected[:36] + expected[38:]
        assert answer == expected, request.hex()
        assert not len(self.segments) and not len(self.words)


async def begin(dut: Any) -> AnswerBench:
    bench = AnswerBench(dut, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    return bench


@shows("IP-1122-3.2.2.6-01")
@cocotb.test(timeout_time=8, timeout_unit="ms")
async def check_requests_among_other_frames(dut: Any) -> None:
    bench = await begin(dut)
    rng = bench.rng
    await bench.asks(CAPTURED_ARP[0])
    await bench.asks(echo_request(b"", padding=bytes(18)))
    await bench.asks(echo_request(rng.randbytes(MTU - 28)))
    requests = 3
    for name, frame in no_requests().items():
        expected = fate_of(frame)
        assert expected is FrameFate.RAW or "all" in name, name
        await check(bench, [(frame, expected)])
    while requests < 100:
        if rng.random() < 0.5:
            requests += 1
            await bench.asks(random_request(rng))
            continue
        frame = random_frame(rng)
        if rng.random() < 0.5:
            frame = broken(rng, frame)
        try:
            await check(bench, [(frame, fate_of(frame))])
        except NotJudgedError:
            continue
    await cycles(dut, 20)
    assert (bench.answered, bench.dropped) == (requests, 0)
    assert not len(bench.answers)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_bad_requests_are_not_answered(dut: Any) -> None:
    """Their checksums, fragments, lengths, sources, and what the MAC says."""
    bench = await begin(dut)
    good = echo_request(bytes(range(40)))
    for octet in range(14, 34):
        frame = bytearray(good)
        frame[octet] ^= 0x10
        bench.put(bytes(frame))
        fate = fate_of(bytes(frame))
        assert fate is not FrameFate.RAW
        assert await bench.judged(1) == [fate]
    for fragment in (0x2000, 0x0001, 0x3FFF):
        bench.put(echo_request(b"abc", fragment=fragment))
        assert await bench.judged(1) == [FrameFate.IP_FRAGMENT]
    for address in ("0.0.0.1", "127.0.0.1", "224.0.0.1", "255.255.255.255"):
        bench.put(echo_request(b"abc", source=type(HERE)(address)))
        assert await bench.judged(1) == [FrameFate.IP_SOURCE]
    bench.put(good, bad=True)
    bench.put(good[:-1])
    bench.put(echo_request(bytes(MTU - 27)))
    fates = [FrameFate.LINK_ERROR, FrameFate.IP_TOTAL_LENGTH, FrameFate.LONG]
    assert await bench.judged(3) == fates
    for octet in (*range(36, 42), 60):
        frame = bytearray(good)
        frame[octet] ^= 0x10
        await check(bench, [(bytes(frame), FrameFate.RAW)])
    await bench.asks(good)
    await cycles(dut, 20)
    assert (bench.answered, bench.dropped) == (1, 0)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_the_driver_answers_while_it_is_disabled(dut: Any) -> None:
    bench = await begin(dut)
    for _ in range(2):
        dut.answers__enable.value = 0
        await cycles(dut, 20)
        for request in (arp_request(), echo_request(b"abc")):
            await check(bench, [(request, FrameFate.RAW)])
        dut.answers__enable.value = 1
        await cycles(dut, 2)
        for request in (arp_request(), echo_request(b"abc")):
            await bench.asks(request)
    await cycles(dut, 20)
    assert (bench.answered, bench.dropped) == (4, 0)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_neither_side_holds_up_the_other(dut: Any) -> None:
    """Requests are answered while nobody takes frames, and frames come while no answer leaves."""
    bench = await begin(dut)
    rng = bench.rng
    bench.words.paused = bench.segments.paused = True
    fates = []
    while FrameFate.FULL not in fates:
        bench.put(random_frame(rng))
        fates += await bench.judged(1)
    for _ in range(3):
        bench.put(echo_request(b"abc"))
        assert await bench.judged(1) == [FrameFate.RAW]
        assert (await bench.answer())[34:36] == bytes(2)
    bench.words.paused = bench.segments.paused = False
    for _ in range(len(fates) - 1):
        await bench.frame()
    bench.answers.paused = True
    for _ in range(9):
        bench.put(echo_request(rng.randbytes(900)))
        assert await bench.judged(1) == [FrameFate.RAW]
        frame = random_frame(rng)
        await check(bench, [(frame, FrameFate.SEGMENT)])
    assert bench.dropped == 7
    bench.answers.paused = False
    for _ in range(2):
        assert len(await bench.answer()) == 942
    await bench.asks(arp_request())


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_latency(dut: Any) -> None:
    """From the last word of the request to the first one of the answer."""
    bench = await begin(dut)
    await bench.asks(arp_request())
    assert bench.first_seen["answer"] - bench.first_seen["last"] == LATENCY


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    block = ReceiveFront(mtu=MTU, store_octets=STORE, answers=True)
    return simulate(tmp_path_factory, block, __name__, request.param, PATTERNS)


@each_check(globals())
def test_receive_front_answers(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
