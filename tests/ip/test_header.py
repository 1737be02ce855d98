"""The first check of Ethernet and IPv4 that a frame fails, and its fields, as in the model."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.layouts import FRAME_WORD_AT, FrameFate
from stagecoach.gateware.ip.header import Ipv4Header
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset
from stagecoach.sim.model.tcp import ipv4
from stagecoach.sim.model.tcp.checksum import checksum
from tests.ethernet.frame_bus import words_of
from tests.support.runner import parameter, run_cocotb
from tests.tcp.frames import MAC, MTU, NotJudgedError, broken, datagram, fate_of, random_frame

FRAMES = 1500
OF_TCP = {fate for fate in FrameFate if fate.name.startswith("TCP_")}
SEEN = set(FrameFate) - OF_TCP - {FrameFate.FULL}
"""What this block may say."""


@pytest.mark.parametrize("gaps", [0, 0.4])
def test_ipv4_header(gaps: float) -> None:
    run_cocotb(Ipv4Header(MTU), __name__, parameters={"GAPS": str(gaps)})


@pytest.mark.parametrize("mtu", [575, 16362])
def test_other_mtus_are_refused(mtu: int) -> None:
    with pytest.raises(ValueError, match=f"mtu is {mtu}; allowed: 576 to 16361"):
        Ipv4Header(mtu)


@pytest.mark.parametrize("mtu", [576, 16361])
def test_the_smallest_and_the_largest_mtu(mtu: int) -> None:
    run_cocotb(
        Ipv4Header(mtu),
        __name__,
        test_filter="check_length",
        parameters={"GAPS": "0", "MTU": str(mtu)},
    )


def _addressed(frame: bytes, at: int, address: str) -> bytes:
    """The frame with another source (`at` 12) or destination (16)."""
    octets = bytearray(frame)
    end = 14 + 4 * (frame[14] & 15)
    octets[14 + at : 18 + at] = ipv4.IPv4Address(address).packed
    octets[24:26] = bytes(2)
    octets[24:26] = checksum(bytes(octets[14:end])).to_bytes(2, "big")
    return bytes(octets)


class Bench:
    """Gives the words of frames, the same ones a cycle later, and what the sum of each came to."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.rng = seeded_random()
        self._ahead: dict[str, int] | None = None

    async def start(self) -> None:
        self.dut.ahead__valid.value = self.dut.i__valid.value = self.dut.good.value = 0
        self.dut.mac.value = int.from_bytes(MAC, "little")
        await start_clock_and_reset(self.dut)

    async def _edge(self, word: dict[str, int] | None) -> None:
        dut, later = self.dut, self._ahead
        for name, each in (("ahead", word), ("i", later)):
            payload = getattr(dut, f"{name}__p")
            getattr(dut, f"{name}__valid").value = each is not None
            bits = self.rng.getrandbits(len(payload))
            payload.value = bits if each is None else pack(FRAME_WORD_AT, each)
        self._ahead = word
        await RisingEdge(dut.clk)

    async def fate(self, frame: bytes, error: bool = False) -> FrameFate:
        """What it says of a frame, after which there are words of another one."""
        for word in words_of(frame, error):
            while self.rng.random() < float(parameter("GAPS")):
                await self._edge(None)
            await self._edge(word)
        begun = None
        if self.rng.random() < 0.5:
            begun = words_of(self.rng.randbytes(8))[0] | {"last": 0}
        await self._edge(begun)
        header = frame[14 : 14 + 4 * (frame[14] & 15)] if len(frame) > 14 else b""
        self.dut.good.value = int(checksum(header) == 0)
        await self._edge(None)
        self.dut.good.value = self.rng.getrandbits(1)
        return FrameFate(int(self.dut.fate.value))


@cocotb.test(timeout_time=8, timeout_unit="ms")
async def check_frames_are_judged_as_the_model_does(dut: Any) -> None:
    bench = Bench(dut)
    rng = bench.rng
    await bench.start()
    seen: set[FrameFate] = set()
    group = bytes.fromhex("01005e000001")
    arp = MAC + MAC + b"\x08\x06" + rng.randbytes(46)
    fixed = [arp, group + arp[6:], arp[:12] + b"\x86\xdd" + arp[14:]]
    fixed += [random_frame(rng)[:length] for length in range(1, 60)]
    fixed += [datagram(rng, b"", 0, protocol=17), datagram(rng, rng.randbytes(8), 40, protocol=1)]
    fixed += [group + random_frame(rng)[6:], MAC + group + random_frame(rng)[12:]]
    sources = ["0.0.0.0", "0.255.0.1", "1.0.0.0", "126.255.255.255", "127.0.0.1", "128.0.0.0"]
    sources += ["223.255.255.255", "224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255"]
    fixed += [_addressed(random_frame(rng), 12, source) for source in sources]
    targets = ["223.255.255.255", "224.0.0.0", "239.255.255.255", "240.0.0.0"]
    targets += ["255.255.255.255", "255.255.0.0", "0.0.255.255"]
    fixed += [_addressed(random_frame(rng), 16, target) for target in targets]
    fixed += [rng.randbytes(4) + random_frame(rng)[4:]]
    while len(fixed) < FRAMES:
        fixed.append(broken(rng, random_frame(rng)))
    for frame in fixed:
        error = rng.random() < 0.02
        try:
            expected = FrameFate.LINK_ERROR if error else fate_of(frame)
        except NotJudgedError:
            continue
        if expected in OF_TCP:
            expected = FrameFate.SEGMENT
        assert await bench.fate(frame, error) is expected, frame.hex()
        seen.add(expected)
        assert int(dut.octets.value) == len(frame)
        if expected is FrameFate.SEGMENT:
            packet = ipv4.Packet.decode(frame[14:])
            assert int(dut.ihl.value) == frame[14] & 15
            assert int(dut.total.value) == int.from_bytes(frame[16:18], "big")
            assert int(dut.source.value) == int(packet.source)
            assert int(dut.destination.value) == int(packet.destination)
            assert int(dut.congestion.value) == packet.service & 3
    assert seen == SEEN


@cocotb.test(timeout_time=8, timeout_unit="ms")
async def check_length_of_the_longest_packet(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    mtu = int(parameter("MTU", str(MTU)))
    for past, expected in ((0, FrameFate.RAW), (1, FrameFate.LONG)):
        frame = MAC + MAC + b"\x08\x06" + bench.rng.randbytes(mtu + past)
        assert await bench.fate(frame) is expected
