"""Frames are kept or dropped as RFC 894, 791 and 9293 say, and leave the front whole."""

from collections import deque
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.layouts import FRAME_WORD, FrameFate
from stagecoach.gateware.tcp.layouts import SEGMENT
from stagecoach.gateware.tcp.receive_front import RECORDS, ReceiveFront
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    active_cycles,
    seeded_random,
    start_clock_and_reset,
)
from tests.host_driver.network.frames import FRAMES
from tests.support.runner import parameter
from tests.support.verdicts import Verdicts, each_check, shows, simulate
from tests.tcp.frames import (
    MAC,
    MTU,
    NotJudgedError,
    broken,
    datagram,
    fate_of,
    random_frame,
    record_of,
    summed,
)

STORE = 4096
LATENCY_RECORD, LATENCY_WORD = 10, 12
PATTERNS = ("always", "random")


class Bench:
    """A MAC that sends frames, with noise where nothing counts, and what comes of them."""

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        self.words = StreamSink(dut, "frames", FRAME_WORD, rng=rng, pattern=pattern)
        self.segments = StreamSink(dut, "segments", SEGMENT, rng=rng, pattern=pattern)
        StreamMonitor(dut, "frames", FRAME_WORD)
        StreamMonitor(dut, "segments", SEGMENT)
        self.fates: list[FrameFate] = []
        self.cycle = 0
        self.first_seen: dict[str, int] = {}
        self._active = active_cycles(pattern, rng)
        self._beats: deque[tuple[bytes, bool, bool, int | None]] = deque()
        dut.rx__tvalid.value = 0
        dut.mac.value = int.from_bytes(MAC, "little")
        cocotb.start_soon(self._send())
        cocotb.start_soon(self._watch())

    def put(self, frame: bytes, *, bad: bool = False, keep: int | None = None, at: int = 0) -> None:
        """Send a frame. bad: as the MAC says. keep: of word `at`, if it is to be wrong."""
        parts = [frame[at : at + 8] for at in range(0, len(frame), 8)] or [b""]
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            self._beats.append((part, last, bad and last, keep if number == at else None))

    async def _send(self) -> None:
        dut, rng = self.dut, self.rng
        while True:
            await RisingEdge(dut.clk)
            sends = not dut.rst.value and bool(self._beats) and next(self._active)
            dut.rx__tvalid.value = int(sends)
            noise = rng.randbytes(8)
            if not sends:
                dut.rx__tdata.value = int.from_bytes(noise, "little")
                dut.rx__tlast.value, dut.rx__tuser.value = rng.getrandbits(1), rng.getrandbits(1)
                continue
            part, last, bad, keep = self._beats.popleft()
            dut.rx__tdata.value = int.from_bytes(part + noise[len(part) :], "little")
            dut.rx__tkeep.value = (1 << len(part)) - 1 if keep is None else keep
            dut.rx__tlast.value, dut.rx__tuser.value = last, bad

    async def _watch(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            if dut.rst.value:
                continue
            if dut.ended.value:
                self.fates.append(FrameFate(int(dut.fate.value)))
            seen = {
                "last": bool(dut.rx__tvalid.value and dut.rx__tlast.value),
                "record": bool(dut.segments__valid.value),
                "word": bool(dut.frames__valid.value),
            }
            for name, is_there in seen.items():
                if is_there:
                    self.first_seen.setdefault(name, self.cycle)

    async def judged(self, count: int) -> list[FrameFate]:
        """The fates of so many frames, once all have ended."""
        while len(self.fates) < count:
            await RisingEdge(self.dut.clk)
        fates, self.fates = self.fates[:count], self.fates[count:]
        return fates

    async def frame(self) -> tuple[dict[str, Any], bytes]:
        """The next frame that was kept: its record, and its octets."""
        record = await self.segments.get()
        words = await self.words.get_until("last")
        octets = b"".join(each["data"].to_bytes(8, "little") for each in words)
        assert len(words) == -(-record["octets"] // 8)
        return record, octets[: record["octets"]]


async def begin(dut: Any) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern), pattern)
    await start_clock_and_reset(dut)
    return bench


async def check(bench: Bench, frames: list[tuple[bytes, FrameFate]]) -> None:
    """Send frames with their fates; those that are kept come out as they were."""
    for frame, expected in frames:
        bench.put(frame)
        assert await bench.judged(1) == [expected], frame.hex()
        if expected in (FrameFate.SEGMENT, FrameFate.RAW):
            record, octets = await bench.frame()
            assert octets == frame
            assert record["raw"] == (expected is FrameFate.RAW)
            if expected is FrameFate.SEGMENT:
                assert record == record_of(frame)


FATES = {
    "arp-vlan": FrameFate.ETHERTYPE,
    "arp": FrameFate.RAW,
    "vlan": FrameFate.ETHERTYPE,
    "ipv6": FrameFate.ETHERTYPE,
    "icmp": FrameFate.RAW,
    "frag": FrameFate.IP_FRAGMENT,
    "tcp-tiny-fragment": FrameFate.IP_FRAGMENT,
    "bad-tcp": FrameFate.TCP_CHECKSUM,
    "bad-ip": FrameFate.IP_CHECKSUM,
    "bad-data-offset": FrameFate.TCP_DATA_OFFSET,
    "bad-total-length": FrameFate.IP_TOTAL_LENGTH,
    "bad-option": FrameFate.SEGMENT,
    "martian-source": FrameFate.IP_SOURCE,
    "syn-to-broadcast": FrameFate.IP_DESTINATION,
}
"""By how the names of known frames begin; all others are good segments."""


@shows("TCP-MUST-3", "TCP-MUST-5", "TCP-MUST-6", "TCP-MUST-7", "TCP-MUST-50", "TCP-MUST-57")
@shows("TCP-3.1-01", "IPV4-3.1-01", "IP-1122-3.2.1.2-01", "IP-1122-3.2.1.3-03")
@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_known_frames_have_their_fate(dut: Any) -> None:
    bench = await begin(dut)
    frames = []
    for name, frame in FRAMES.items():
        if not frame[0] & 1:
            frame = MAC + frame[6:]
        prefix = next((each for each in FATES if name.startswith(each)), None)
        frames.append((frame, FATES[prefix] if prefix else FrameFate.SEGMENT))
    assert {fate for _, fate in frames} >= set(FATES.values())
    await check(bench, frames)


@shows("TCP-MUST-3", "TCP-MUST-50", "TCP-MUST-64", "TCP-3.1-01", "TCP-3.1-03", "IPV4-3.1-01")
@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_random_frames_have_the_fate_of_the_reference(dut: Any) -> None:
    bench = await begin(dut)
    rng = bench.rng
    frames = []
    while len(frames) < 500:
        frame = random_frame(rng)
        if rng.random() < 0.1:
            frame = datagram(rng, rng.randbytes(40), 0, protocol=17)
        if rng.random() < 0.7:
            frame = broken(rng, frame)
        try:
            frames.append((frame, fate_of(frame)))
        except NotJudgedError:
            continue
    met = {fate for _, fate in frames}
    assert len(met) >= 14, met
    await check(bench, frames)


@shows("TCP-3.1-01")
@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_short_segments_with_every_data_offset(dut: Any) -> None:
    bench = await begin(dut)
    frames = []
    for length in range(27):
        for offset in range(16):
            octets = bytearray(bench.rng.randbytes(length))
            octets[:4] = b"\x01\x02\x03\x04"[:length]
            octets[12:13] = bytes([offset << 4])[: max(length - 12, 0)]
            frame = datagram(bench.rng, summed(bytes(octets)), 0)
            frames.append((frame, fate_of(frame)))
    met = {fate for _, fate in frames}
    assert met == {FrameFate.TCP_SHORT, FrameFate.TCP_DATA_OFFSET, FrameFate.SEGMENT}
    await check(bench, frames)


@shows("TCP-MUST-3")
@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_every_bit_of_a_segment_is_under_a_checksum(dut: Any) -> None:
    bench = await begin(dut)
    good = MAC + FRAMES["data-1"][6:]
    for bit in range(8 * 14, 8 * len(good)):
        octets = bytearray(good)
        octets[bit // 8] ^= 1 << bit % 8
        bench.put(bytes(octets))
    flipped = 8 * (len(good) - 14)
    assert not {FrameFate.SEGMENT, FrameFate.RAW} & set(await bench.judged(flipped))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_the_mac_calls_bad_is_dropped(dut: Any) -> None:
    bench = await begin(dut)
    frame = random_frame(bench.rng)
    bench.put(frame, bad=True)
    for keep in (0x00, 0x7F, 0xFE, 0xDF):
        bench.put(frame, keep=keep)
        bench.put(frame, keep=keep & 0xFE, at=-(-len(frame) // 8) - 1)
    bench.put(frame)
    assert await bench.judged(10) == [FrameFate.LINK_ERROR] * 9 + [FrameFate.SEGMENT]
    assert (await bench.frame())[1] == frame
    assert not len(bench.segments)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_frames_without_room_are_dropped_whole(dut: Any) -> None:
    """A reader that takes nothing costs frames, and nothing else."""
    bench = await begin(dut)
    rng = bench.rng
    for octets in (20, 1000):
        bench.words.paused = bench.segments.paused = True
        await RisingEdge(dut.clk)
        frames = [datagram(rng, rng.randbytes(octets), 0, protocol=17) for _ in range(RECORDS + 8)]
        for frame in frames:
            bench.put(frame)
        fates = await bench.judged(len(frames))
        kept = [frame for frame, fate in zip(frames, fates, strict=True) if fate is FrameFate.RAW]
        assert set(fates) == {FrameFate.RAW, FrameFate.FULL}
        assert len(kept) >= min(RECORDS, STORE // (octets + 80))
        bench.words.paused = bench.segments.paused = False
        for frame in kept:
            assert (await bench.frame())[1] == frame
        bench.put(frames[0])
        assert await bench.judged(1) == [FrameFate.RAW]
        assert (await bench.frame())[1] == frames[0]


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_frames_without_a_gap_are_all_kept(dut: Any) -> None:
    """Line rate and more: no cycle between frames, and the latency that the docstring tells."""
    bench = await begin(dut)
    rng = bench.rng
    sizes = [0, 26, 600, 1440, 1, 1440]
    frames = [datagram(rng, rng.randbytes(size + 20), 0, protocol=17) for size in sizes]
    for frame in frames:
        bench.put(frame)
    assert await bench.judged(len(frames)) == [FrameFate.RAW] * len(frames)
    for frame in frames:
        assert (await bench.frame())[1] == frame
    seen = bench.first_seen
    assert seen["record"] - seen["last"] == LATENCY_RECORD
    assert seen["word"] - seen["last"] == LATENCY_WORD


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    block = ReceiveFront(mtu=MTU, store_octets=STORE)
    return simulate(tmp_path_factory, block, __name__, request.param, PATTERNS)


@each_check(globals())
def test_receive_front(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
