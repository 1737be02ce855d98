"""The MPA receiver takes Markers out and checks them (RFC 5044, 4.2 to 4.4 and 8)."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import MAX_ULPDU_LENGTH
from stagecoach.gateware.layouts import QpCommandKind, SegmentKind
from stagecoach.gateware.mpa.receiver import MpaReceiver
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model.crc32c import crc32c_octets
from stagecoach.sim.model.markers import MARKER_INTERVAL, MARKER_OCTETS
from stagecoach.sim.model.mpa import Framer, fpdu_length, frame_fpdu, parse_fpdu
from tests.mpa.receiver_bench import CONFIG, Bench, random_length
from tests.mpa.vectors import all_vectors
from tests.support.runner import parameter
from tests.support.verdicts import PATTERNS, Verdicts, each_check, shows, simulate

POSITIONS = MARKER_INTERVAL // MARKER_OCTETS


class Stream:
    """What a peer with Markers sends on one connection."""

    def __init__(self, crc: bool = True) -> None:
        self.framer = Framer(markers=True, crc=crc)
        self.ulpdus: list[bytes] = []
        self.octets = b""

    def add(self, ulpdu: bytes) -> None:
        self.octets += self.framer.frame(ulpdu)
        self.ulpdus.append(ulpdu)

    def fill_up_to(self, until_marker: int, rng: random.Random) -> None:
        """Add an FPDU after which so many units follow before the next Marker."""
        wanted = -until_marker * MARKER_OCTETS % MARKER_INTERVAL
        for length in range(14, 14 + 2 * MARKER_INTERVAL):
            end = self.framer.position + fpdu_length(
                length, markers=True, position=self.framer.position
            )
            if end % MARKER_INTERVAL == wanted:
                self.add(rng.randbytes(length))
                return
        raise ValueError(f"no FPDU ends {until_marker} units before a Marker")


def with_markers_of(fpdu: bytes, position: int, crc: bool, change: Any) -> bytes:
    """Return the FPDU with `change(index, marker)` instead of its Markers and the CRC over that."""
    changed = bytearray(fpdu)
    for index, marker in enumerate(parse_fpdu(fpdu, markers=True, position=position).markers):
        octets = slice(marker.offset, marker.offset + MARKER_OCTETS)
        changed[octets] = change(index, bytes(changed[octets]))
    return bytes(changed[:-4]) + (crc32c_octets(changed[:-4]) if crc else bytes(4))


async def start_bench(dut: Any, **options: Any) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern), pattern, **options)
    await bench.start()
    return bench


@shows("DDP-3-05", "DDP-3-09", "MPA-3-07", "MPA-4.3-10", "MPA-4.3-11")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_known_fpdus_with_markers(dut: Any) -> None:
    bench = await start_bench(dut)
    known = [v for v in all_vectors("fpdu") if v["markers"] and v["ulpdus_hex"]]
    names = {vector["name"] for vector in known}
    assert {"RFC 5044 Figure 5", "Figure 6 in context", "Marker between PAD and CRC"} <= names
    for vector in known:
        await bench.connect(0, bool(vector["crc_on"]), markers=True)
        bench.ulpdus[0].clear()
        bench.deliver(0, bytes.fromhex(vector["stream_hex"]))
        bench.llp.announce(0, 1 << 20)
        expected = [bytes.fromhex(text) for text in vector["ulpdus_hex"]]
        assert await bench.wait_for(0, len(expected)) == expected, vector["name"]
        await bench.command(0, QpCommandKind.DESTROY)
        await bench.cycles(60)
    assert not bench.errors


def other_pointer(rng: random.Random, wrong: int) -> Any:
    """A change: Marker number `wrong` has one of the bits of FPDUPTR that count inverted."""

    def change(index: int, marker: bytes) -> bytes:
        bit = 1 << rng.randrange(2, 16)
        value = int.from_bytes(marker, "big") ^ (bit if index == wrong else 0)
        return value.to_bytes(MARKER_OCTETS, "big")

    return change


@shows("MPA-5.1-05", "MPA-A.4-01")
@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_random_fpdus_of_connections_with_and_without_markers(dut: Any) -> None:
    bench = await start_bench(dut)
    rng = bench.rng
    sent: dict[int, list[bytes]] = {}
    for qp in range(CONFIG.qps):
        framer = Framer(markers=qp != 1, crc=qp != 2)
        await bench.connect(qp, framer.crc, framer.markers)
        sent[qp] = [rng.randbytes(random_length(rng) + 1) for _ in range(30)]
        for ulpdu in sent[qp]:
            bench.deliver(qp, framer.frame(ulpdu))
        chunk = [(1, 64), (1, 3000), (1460, 1460), (1, 9000)][qp]
        cocotb.start_soon(bench.announce_in_chunks(qp, chunk, 100))
    for qp in range(CONFIG.qps):
        assert await bench.wait_for(qp, len(sent[qp])) == sent[qp], f"connection {qp}"
    await bench.cycles(200)
    assert not bench.errors
    for qp in range(CONFIG.qps):
        assert bench.llp.released[qp] == len(bench.llp.octets[qp])


@shows("MPA-4.3-11", "MPA-6-02")
@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_every_position_of_the_first_marker(dut: Any) -> None:
    bench = await start_bench(dut)
    rng = bench.rng
    sent: dict[int, list[bytes]] = {}
    for qp, lengths in enumerate(((1, 2, 3, 7), (14, 15, 18), (17, 20, 25), (503, 504))):
        stream = Stream()
        for length in lengths:
            units = length // 4
            # No FPDU ends directly after a Marker.
            for until in range(POSITIONS - 1):
                near = until <= min(units, 8) + 3 or abs(until - units) <= 3
                if near or until >= POSITIONS - 3 or rng.random() < 0.05:
                    stream.fill_up_to(until, rng)
                    stream.add(rng.randbytes(length))
        await bench.connect(qp, markers=True)
        bench.deliver(qp, stream.octets)
        chunk = [(4, 60), (1460, 1460), (1, 4000), (20000, 20000)][qp]
        cocotb.start_soon(bench.announce_in_chunks(qp, chunk, 20))
        sent[qp] = stream.ulpdus
    for qp in range(CONFIG.qps):
        assert await bench.wait_for(qp, len(sent[qp])) == sent[qp]
    assert not bench.errors


@shows("MPA-5.2-02", "MPA-8-01", "MPA-8-03", "MPA-8-04", "MPA-8-05", "MPA-8-08")
@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_wrong_fpduptr_is_a_marker_error(dut: Any) -> None:
    bench = await start_bench(dut)
    rng = bench.rng
    # Connection 3 goes on all the time.
    await bench.connect(3, markers=True)
    beside = Stream()
    for _ in range(60):
        beside.add(rng.randbytes(random_length(rng) + 1))
    bench.deliver(3, beside.octets)
    cocotb.start_soon(bench.announce_in_chunks(3, (1, 3000), 300))
    # The Marker before the FPDU, those in it, and the one between PAD and CRC
    cases = [(0, length, wrong) for length in (1400, 1516) for wrong in range(3)]
    cases += [(until, 26, 0) for until in (0, 1, 2, 5, 6, 7)]
    for number, (until, length, wrong) in enumerate(cases * 2):
        crc = number < len(cases)
        qp = rng.randrange(3)
        await bench.connect(qp, crc, markers=True)
        bench.ulpdus[qp].clear()
        stream = Stream(crc)
        stream.fill_up_to(until, rng)
        bench.deliver(qp, stream.octets)
        position = len(stream.octets)
        fpdu = frame_fpdu(rng.randbytes(length), markers=True, position=position)
        markers = len(parse_fpdu(fpdu, markers=True, position=position).markers)
        assert markers > wrong
        bad = with_markers_of(fpdu, position, crc, other_pointer(rng, wrong))
        bench.deliver(qp, bad + stream.framer.frame(b"never"))
        cocotb.start_soon(bench.announce_in_chunks(qp, (1, 3000), 20))
        assert await bench.wait_for_error() == (qp, SegmentKind.MARKER_ERROR)
        assert bench.ulpdus[qp] == stream.ulpdus
        assert bench.llp.released[qp] <= position
        await bench.cycles(400)
        await bench.command(qp, QpCommandKind.DESTROY)
        await bench.cycles(60)
    assert await bench.wait_for(3, len(beside.ulpdus)) == beside.ulpdus
    assert not bench.errors


@shows("MPA-4.4-13", "MPA-4.4-14", "MPA-6-01")
@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_bad_crc_comes_before_wrong_fpduptr(dut: Any) -> None:
    bench = await start_bench(dut)
    rng = bench.rng
    for until in (0, 1, 3, 6, 7):
        stream = Stream()
        stream.fill_up_to(until, rng)
        position = len(stream.octets)
        fpdu = frame_fpdu(rng.randbytes(26), markers=True, position=position)
        (marker,) = parse_fpdu(fpdu, markers=True, position=position).markers
        for damaged in (marker.offset, marker.offset + 3, len(fpdu) - 1):
            bad = bytearray(with_markers_of(fpdu, position, True, other_pointer(rng, 0)))
            bad[damaged] ^= 0x10
            qp = rng.randrange(3)
            bench.ulpdus[qp].clear()
            await bench.connect(qp, markers=True)
            bench.deliver(qp, stream.octets + bytes(bad))
            bench.llp.announce(qp, 1 << 20)
            assert await bench.wait_for_error() == (qp, SegmentKind.CRC_ERROR)
            assert bench.ulpdus[qp] == stream.ulpdus
            await bench.command(qp, QpCommandKind.DESTROY)
            await bench.cycles(200)


@shows("MPA-4.2-03", "MPA-4.2-05", "MPA-4.3-06")
@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_reserved_and_low_bits_of_fpduptr_do_not_count(dut: Any) -> None:
    bench = await start_bench(dut)
    rng = bench.rng

    def noise(index: int, marker: bytes) -> bytes:
        return rng.randbytes(2) + marker[2:3] + bytes([marker[3] | rng.randrange(4)])

    for qp, crc in enumerate((True, False)):
        await bench.connect(qp, crc, markers=True)
        framer = Framer(markers=True, crc=crc)
        sent = [rng.randbytes(random_length(rng) + 1) for _ in range(30)]
        for ulpdu in sent:
            position = framer.position
            bench.deliver(qp, with_markers_of(framer.frame(ulpdu), position, crc, noise))
        cocotb.start_soon(bench.announce_in_chunks(qp, (1, 3000), 20))
        assert await bench.wait_for(qp, len(sent)) == sent
    assert not bench.errors


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_too_long_ulpdu_length_behind_a_marker_is_an_error_at_once(dut: Any) -> None:
    bench = await start_bench(dut)
    for qp, until in enumerate((0, 1, 2, 3)):
        await bench.connect(qp, crc=bool(qp % 2), markers=True)
        stream = Stream(bool(qp % 2))
        stream.fill_up_to(until, bench.rng)
        marker = bytes(4) if until == 0 else b""
        bench.deliver(qp, stream.octets + marker + b"\xfd\x01" + bytes(20))
        bench.llp.announce(qp, 1 << 20)
        assert await bench.wait_for_error() == (qp, SegmentKind.CRC_ERROR)
        assert bench.ulpdus[qp] == stream.ulpdus


@shows("MPA-6-03")
@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_incomplete_fpdu_does_not_block_others(dut: Any) -> None:
    bench = await start_bench(dut)
    rng = bench.rng
    # Lengths and positions for which the number of Markers changes with the last units
    cases = [(0, 26), (7, 26), (8, 26), (126, 500), (126, 502), (126, 506), (5, 1500), (0, 1504)]
    other = Framer(markers=True)
    await bench.connect(1, markers=True)
    for until, length in cases:
        await bench.connect(0, markers=True)
        stream = Stream()
        stream.fill_up_to(until, rng)
        before = len(stream.octets)
        stream.add(rng.randbytes(length))
        bench.deliver(0, stream.octets)
        bench.ulpdus[0].clear()
        # The length can be seen, but the FPDU is not complete.
        bench.llp.announce(0, before + 12)
        assert await bench.wait_for(0, 1) == stream.ulpdus[:1]
        await bench.cycles(150)
        requested = bench.llp.requested_octets
        missing = len(stream.octets) - before - 12
        for part in (missing // 2, missing - missing // 2 - 4, 3):
            bench.llp.announce(0, part)
            await bench.cycles(60)
        assert bench.llp.requested_octets == requested, "not worth a request"
        bench.ulpdus[1].clear()
        sent = [rng.randbytes(200) for _ in range(5)]
        bench.deliver(1, b"".join(other.frame(ulpdu) for ulpdu in sent))
        bench.llp.announce(1, 1 << 20)
        assert await bench.wait_for(1, 5) == sent
        assert bench.ulpdus[0] == stream.ulpdus[:1]
        bench.llp.announce(0, 1)
        assert await bench.wait_for(0, 2) == stream.ulpdus
        await bench.command(0, QpCommandKind.DESTROY)
        await bench.cycles(60)
    assert not bench.errors


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_marker_behind_the_last_fpdu_waits_for_the_next(dut: Any) -> None:
    bench = await start_bench(dut)
    rng = bench.rng
    await bench.connect(2, markers=True)
    stream = Stream()
    for _ in range(8):
        stream.fill_up_to(0, rng)
        end = len(stream.octets)
        stream.add(rng.randbytes(rng.randint(1, 40)))
        bench.llp.octets[2] = bytearray(stream.octets)
        # Up to the end of the Marker, and up to the end of ULPDU_Length
        bench.llp.announce(2, end + 4 - bench.llp.available[2])
        assert await bench.wait_for(2, len(stream.ulpdus) - 1) == stream.ulpdus[:-1]
        await bench.cycles(200)
        assert bench.llp.released[2] == end
        bench.llp.announce(2, 2)
        await bench.cycles(200)
        bench.llp.announce(2, 1 << 20)
        assert await bench.wait_for(2, len(stream.ulpdus)) == stream.ulpdus
    stream.fill_up_to(0, rng)
    bench.llp.octets[2] = bytearray(stream.octets + bytes(4))
    bench.llp.announce(2, 1 << 20)
    bench.llp.close(2)
    # The Marker is contained in the FPDU that follows (RFC 5044, 4.3): the stream ends inside it.
    assert await bench.wait_for_error() == (2, SegmentKind.CLOSED_INSIDE)
    assert bench.ulpdus[2] == stream.ulpdus


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_connection_begins_anew_with_or_without_markers(dut: Any) -> None:
    bench = await start_bench(dut)
    rng = bench.rng
    for _ in range(10):
        for qp, markers in ((1, rng.random() < 0.5), (2, rng.random() < 0.5)):
            await bench.connect(qp, markers=markers)
            framer = Framer(markers=markers)
            sent = [rng.randbytes(rng.randint(14, 4000)) for _ in range(8)]
            bench.deliver(qp, b"".join(framer.frame(ulpdu) for ulpdu in sent))
            bench.llp.announce(qp, 1 << 20)
        await bench.cycles(rng.randint(0, 1500))
        for qp in (1, 2):
            await bench.command(qp, QpCommandKind.DESTROY)
        await bench.cycles(3000)
        framer = Framer(markers=rng.random() < 0.5)
        last = [rng.randbytes(random_length(rng) + 1) for _ in range(5)]
        bench.ulpdus[1].clear()
        await bench.connect(1, markers=framer.markers)
        bench.deliver(1, b"".join(framer.frame(ulpdu) for ulpdu in last))
        bench.llp.announce(1, 1 << 20)
        assert await bench.wait_for(1, 5) == last
        await bench.command(1, QpCommandKind.DESTROY)
    assert not bench.errors


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_longest_fpdus_fill_the_store_and_pass(dut: Any) -> None:
    if parameter("PATTERN") != "always":
        return
    bench = await start_bench(dut)
    stream = Stream()
    for length in (MAX_ULPDU_LENGTH, 64767, 64766, 100, MAX_ULPDU_LENGTH):
        stream.add(bench.rng.randbytes(length))
    await bench.connect(0, markers=True)
    bench.deliver(0, stream.octets)
    bench.segments.paused = True
    bench.llp.announce(0, 1 << 20)
    await bench.cycles(20000)
    bench.segments.paused = False
    assert await bench.wait_for(0, len(stream.ulpdus)) == stream.ulpdus


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_backlog_streams_at_full_rate(dut: Any) -> None:
    if parameter("PATTERN") != "always":
        return
    bench = await start_bench(dut, latency=(20, 20), place=False)
    cases: list[tuple[str, list[int]]] = [
        ("ULPDUs of 1442 octets", [1442] * 40),
        ("ULPDUs of 1440 octets", [1440] * 40),
        ("ULPDUs of 30 to 100 octets", [bench.rng.randint(30, 100) for _ in range(200)]),
    ]
    for qp, (name, lengths) in enumerate(cases):
        await bench.connect(qp, markers=True)
        stream = Stream()
        words = 0  # each FPDU starts with a word of its own
        for length in lengths:
            begin = len(stream.octets)
            stream.add(bench.rng.randbytes(length))
            words += -(-(len(stream.octets) - begin) // 8)
        bench.deliver(qp, stream.octets)
        stalls = bench.rx_stalls
        bench.llp.announce(qp, 1 << 20)
        start = bench.now()
        while len(bench.ulpdus[qp]) < len(lengths):
            await RisingEdge(dut.clk)
        cycles = bench.now() - start
        beats = -(-len(stream.octets) // 8)
        dut._log.info(f"{name}: {words} words, {beats} beats, {cycles} cycles")
        assert cycles <= words + 80
        assert bench.rx_stalls - stalls <= words - beats + 2


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, MpaReceiver(CONFIG), __name__, request.param)


@each_check(globals())
def test_receiver_markers(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
