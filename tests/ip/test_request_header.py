"""Requests of ARP and ICMP echo for this station are known, and nothing else is taken for one."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.layouts import FRAME_WORD_AT
from stagecoach.gateware.ip.request_header import RequestHeader
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset
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
    no_requests,
    random_request,
)
from tests.support.runner import parameter, run_cocotb
from tests.tcp.frames import ARP, MAC


@pytest.mark.parametrize("gaps", [0, 0.4])
def test_request_header(gaps: float) -> None:
    run_cocotb(RequestHeader(), __name__, parameters={"GAPS": str(gaps)})


class Bench:
    """Gives frames, and what the sum of each came to."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.rng = seeded_random()

    async def start(self) -> None:
        dut = self.dut
        dut.i__valid.value = dut.good.value = dut.own.value = 0
        dut.address.value = int(HERE)
        await start_clock_and_reset(dut)

    async def _edge(self, word: dict[str, int] | None) -> None:
        dut, payload = self.dut, self.dut.i__p
        dut.i__valid.value = word is not None
        bits = self.rng.getrandbits(len(payload))
        payload.value = bits if word is None else pack(FRAME_WORD_AT, word)
        await RisingEdge(dut.clk)
        dut.good.value = self.rng.getrandbits(1)

    async def asks(self, frame: bytes) -> bool:
        """Whether the frame is taken for a request, while the next one begins."""
        dut = self.dut
        for word in words_of(frame):
            if word["index"] == 1:
                dut.own.value = int(frame[:6] == MAC)
            while self.rng.random() < float(parameter("GAPS")):
                await self._edge(None)
            await self._edge(word)
        is_ip = frame[12:14] != ARP and len(frame) > 42
        dut.good.value = int(checksum(echo_message(frame)) == 0) if is_ip else 1
        begun = None
        if self.rng.random() < 0.5:
            begun = words_of(self.rng.randbytes(8))[0] | {"last": 0}
        dut.i__valid.value = begun is not None
        if begun is not None:
            dut.i__p.value = pack(FRAME_WORD_AT, begun)
        await RisingEdge(dut.clk)
        found = bool(dut.asks.value)
        dut.i__valid.value, dut.own.value = 0, self.rng.getrandbits(1)
        return found


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_captured_requests_are_known(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for request, reply in (CAPTURED_ARP, CAPTURED_ECHO):
        assert await bench.asks(request)
        assert not await bench.asks(reply), "a reply"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_frames_that_are_no_requests(dut: Any) -> None:
    """The driver gets them; a request before has left nothing."""
    bench = Bench(dut)
    await bench.start()
    for name, frame in no_requests().items():
        assert answer_to(frame) is None, name
        assert await bench.asks(bench.rng.choice([arp_request(), echo_request(b"a")]))
        assert not await bench.asks(frame), name


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_shortest_and_the_longest(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for data in (0, 1, 2, 3, 4, 17, 18, 19, 20, MOST_DATA - 1, MOST_DATA):
        assert await bench.asks(echo_request(bench.rng.randbytes(data))), data
    for data in (MOST_DATA + 1, MOST_DATA + 16, MOST_DATA + 17, 4068, 8972):
        assert not await bench.asks(echo_request(bench.rng.randbytes(data))), data
    for request in (arp_request(padding=b""), echo_request(b"", padding=bytes(18))):
        assert await bench.asks(request)
        for length in range(1, 42):
            assert not await bench.asks(request[:length]), length


@cocotb.test(timeout_time=8, timeout_unit="ms")
async def check_random_frames(dut: Any) -> None:
    """Requests of which an octet that is compared is changed, or not, and garbage."""
    bench = Bench(dut)
    rng = bench.rng
    await bench.start()
    seen = {True: 0, False: 0}
    for _ in range(600):
        frame = bytearray(random_request(rng, 200))
        if rng.random() < 0.6:
            # Not what the checks of IPv4 look at.
            spots = [*range(12), *range(20, 22), *range(28, 42)]
            if frame[12:14] != ARP:
                spots = [*range(6), *range(22, 24), *range(26, 36)]
            frame[rng.choice(spots)] ^= 1 << rng.randrange(8)
        elif rng.random() < 0.1:
            frame[12:] = b"\x08\x06" + rng.randbytes(46)
        expected = answer_to(bytes(frame)) is not None
        seen[expected] += 1
        assert await bench.asks(bytes(frame)) == expected, frame.hex()
    assert min(seen.values()) > 100


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_sum_counts_for_an_echo_alone(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for octet in range(34, 50):
        frame = bytearray(echo_request(bytes(range(8)), padding=b"\0\0"))
        frame[octet] ^= 0x40
        assert not await bench.asks(bytes(frame)), octet
    assert await bench.asks(echo_request(bytes(range(8)), padding=b"\x55\x55"))
