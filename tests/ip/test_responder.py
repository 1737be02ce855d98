"""Requests are answered as RFC 826 and RFC 792 say, whole and in order, or dropped and counted."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.layouts import FRAME_BEAT, FRAME_WORD_AT
from stagecoach.gateware.ip.responder import PLACES, Responder
from stagecoach.sim.cosim.signals import cycles, every_cycle
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    active_cycles,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from stagecoach.sim.model.tcp.checksum import checksum
from tests.ethernet.frame_bus import words_of
from tests.ip.arp_and_echo import (
    CAPTURED_ARP,
    CAPTURED_ECHO,
    HERE,
    MOST_DATA,
    answer_to,
    arp_request,
    echo_message,
    echo_request,
    random_request,
)
from tests.support.runner import parameter
from tests.support.verdicts import Verdicts, each_check, simulate
from tests.tcp.frames import MAC

PATTERNS = ("always", "random")
LATENCY, BETWEEN = 10, 10


class Bench:
    """Frames of the wire, and a MAC that takes answers."""

    def __init__(self, dut: Any) -> None:
        pattern = parameter("PATTERN")
        self.dut = dut
        self.rng = rng = seeded_random(pattern)
        self.sink = StreamSink(dut, "frame", FRAME_BEAT, rng=rng, pattern=pattern)
        StreamMonitor(dut, "frame", FRAME_BEAT, keep=False)
        self.answered = self.dropped = 0
        self.cycle = 0
        self.seen: dict[str, list[int]] = {"ended": [], "begins": [], "left": []}
        self._active = active_cycles(pattern, rng)
        self._begins = True
        dut.i__valid.value = dut.keep.value = 0
        dut.mac.value = int.from_bytes(MAC, "little")
        dut.address.value = int(HERE)
        every_cycle(dut, self._watch)

    def _watch(self, in_reset: bool) -> None:
        dut = self.dut
        self.cycle += 1
        if in_reset:
            return
        self.answered += int(dut.answered.value)
        self.dropped += int(dut.dropped.value)
        if dut.i__valid.value and dut.keep.value:
            self.seen["ended"].append(self.cycle)
        if dut.frame__valid.value:
            if self._begins:
                self.seen["begins"].append(self.cycle)
            self._begins = False
            if dut.frame__ready.value and dut.answered.value:
                self.seen["left"].append(self.cycle)
                self._begins = True

    async def send(self, frame: bytes, keep: bool = True) -> None:
        """A frame comes."""
        dut, rng = self.dut, self.rng
        for word in words_of(frame):
            while not next(self._active):
                dut.i__valid.value, dut.i__p.value = 0, rng.getrandbits(len(dut.i__p))
                dut.keep.value = rng.getrandbits(1)
                await RisingEdge(dut.clk)
            dut.i__valid.value, dut.i__p.value = 1, pack(FRAME_WORD_AT, word)
            dut.keep.value = int(keep and word["last"])
            await RisingEdge(dut.clk)
        dut.i__valid.value = dut.keep.value = 0

    async def answer(self) -> bytes:
        """The next answer."""
        beats = await self.sink.get_until("last")
        assert all(beat["octets"] == 8 for beat in beats[:-1])
        parts = [beat["data"].to_bytes(8, "little")[: beat["octets"]] for beat in beats]
        return b"".join(parts)


async def begin(dut: Any) -> Bench:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    return bench


def is_answer(answer: bytes, request: bytes) -> bool:
    """Whether it is what has to be answered, with any of the two zeros for a sum."""
    expected = answer_to(request)
    assert expected is not None
    if answer[12:14] == b"\x08\x00" and checksum(echo_message(answer)) == 0:
        return answer[:36] + answer[38:] == expected[:36] + expected[38:]
    return answer == expected


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_captured_requests(dut: Any) -> None:
    """As Linux has answered, but for identification, DF and TTL of the packet."""
    bench = await begin(dut)
    await bench.send(CAPTURED_ARP[0])
    assert await bench.answer() == CAPTURED_ARP[1]
    request, reply = CAPTURED_ECHO
    await bench.send(request)
    answer = await bench.answer()
    assert answer[:18] == reply[:18] and answer[22:24] == reply[22:24]
    assert answer[26:] == reply[26:]
    assert checksum(answer[14:34]) == 0
    await cycles(dut, 5)
    assert (bench.answered, bench.dropped) == (2, 0)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_every_length_of_an_echo(dut: Any) -> None:
    """From none to the longest one, with padding that does not come back."""
    bench = await begin(dut)
    rng = bench.rng
    for octets in (*range(35), 1457, 1471, 1472, MOST_DATA - 1, MOST_DATA):
        request = echo_request(
            rng.randbytes(octets), ttl=rng.getrandbits(8), padding=b"\xee" * max(18 - octets, 0)
        )
        await bench.send(request)
        answer = await bench.answer()
        assert is_answer(answer, request), request.hex()
        assert len(answer) == 42 + octets


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_request_in_a_long_frame(dut: Any) -> None:
    """What follows the packet in its frame does not count, also if it fills a place and more."""
    bench = await begin(dut)
    for request in (arp_request(), echo_request(b"data")):
        for octets in (8 * 256, 8 * 256 + 1, 9_014):
            await bench.send(request + bench.rng.randbytes(octets - len(request)))
            assert is_answer(await bench.answer(), request)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_sums_at_their_limits(dut: Any) -> None:
    """All TTLs; sums of ICMP with and without a carry, and a message that is 0 but for its type."""
    bench = await begin(dut)
    for ttl in range(256):
        request = echo_request(b"", ttl=ttl, identification=bench.rng.getrandbits(16))
        await bench.send(request)
        assert is_answer(await bench.answer(), request), ttl
    for wanted in (0x0000, 0x0001, 0xF7FE, 0xF7FF, 0xF800, 0xF801, 0xFFFE):
        # Numbers that make the request's checksum this one.
        rest = (0xFFFF - wanted - 0x0800) % 0xFFFF
        request = echo_request(bytes(2), numbers=bytes(2) + rest.to_bytes(2, "big"))
        assert int.from_bytes(request[36:38], "big") == wanted
        await bench.send(request)
        assert is_answer(await bench.answer(), request), hex(wanted)


@cocotb.test(timeout_time=6, timeout_unit="ms")
async def check_random_frames(dut: Any) -> None:
    """Requests among frames that are none, of any length; all that find a place are answered."""
    bench = await begin(dut)
    rng = bench.rng
    requests: list[bytes] = []
    sent = matched = 0
    for _ in range(300):
        if rng.random() < 0.4:
            await bench.send(rng.randbytes(rng.choice([1, 8, 60, rng.randrange(1, 4000)])), False)
            continue
        sent += 1
        dropped = bench.dropped
        request = random_request(rng)
        await bench.send(request)
        await cycles(dut, 1)
        if bench.dropped == dropped:
            requests.append(request)
        if rng.random() < 0.5:
            while matched < len(requests):
                assert is_answer(await bench.answer(), requests[matched])
                matched += 1
    while matched < len(requests):
        assert is_answer(await bench.answer(), requests[matched])
        matched += 1
    await cycles(dut, 30)
    assert not len(bench.sink)
    assert bench.answered == matched and bench.answered + bench.dropped == sent
    assert bench.dropped > 5 and matched > 50


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_mac_that_takes_nothing(dut: Any) -> None:
    """Two requests stay as they are, and all others are dropped, each of them once."""
    bench = await begin(dut)
    rng = bench.rng
    bench.sink.paused = True
    requests = [echo_request(rng.randbytes(100 + number)) for number in range(12)]
    for request in requests:
        await bench.send(request)
        await bench.send(rng.randbytes(300), False)
    await cycles(dut, 20)
    assert (bench.answered, bench.dropped) == (0, 12 - PLACES)
    assert dut.frame__valid.value
    bench.sink.paused = False
    for request in requests[:PLACES]:
        assert is_answer(await bench.answer(), request)
    # A place that is free when half of a frame has come is not for that frame.
    bench.sink.paused = True
    for request in (arp_request(), arp_request()):
        await bench.send(request)
    await cycles(dut, 20)
    late = bench.dropped
    long = cocotb.start_soon(bench.send(echo_request(rng.randbytes(1400))))
    await cycles(dut, 20)
    bench.sink.paused = False
    await long
    await cycles(dut, 2)
    assert bench.dropped == late + 1
    for _ in range(2):
        assert is_answer(await bench.answer(), arp_request())
    await bench.send(requests[3])
    assert is_answer(await bench.answer(), requests[3])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cycles(dut: Any) -> None:
    """From a request to its answer, without a gap, and to the next one."""
    bench = await begin(dut)
    bench.sink.set_pattern("always")
    await cycles(dut, 5)
    for _ in range(2):
        await bench.send(echo_request(bytes(1472)))
        await bench.answer()
    bench.sink.paused = True
    await bench.send(arp_request())
    await bench.send(arp_request())
    await cycles(dut, 20)
    bench.sink.paused = False
    await bench.answer()
    await bench.answer()
    await cycles(dut, 2)
    ended, begins, left = bench.seen.values()
    words = -(-1514 // 8)
    assert begins[0] - ended[0] == begins[1] - ended[1] == LATENCY
    assert left[0] - begins[0] == words - 1, "a gap"
    assert begins[3] - left[2] == BETWEEN


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, Responder(), __name__, request.param, PATTERNS)


@each_check(globals())
def test_responder(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
