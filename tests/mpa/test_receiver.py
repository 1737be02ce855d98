"""The MPA receiver passes on every whole FPDU with a good CRC, in order, and nothing else."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.layouts import QpCommandKind, SegmentKind
from stagecoach.gateware.mpa.receiver import MpaReceiver
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model.crc32c import crc32c_octets
from stagecoach.sim.model.mpa import Framer, frame_fpdu
from tests.mpa.receiver_bench import CONFIG, Bench, random_length
from tests.mpa.vectors import all_vectors
from tests.support.runner import parameter
from tests.support.verdicts import PATTERNS, Verdicts, each_check, shows, simulate


@shows("DDP-3-05", "DDP-3-09", "MPA-3-07", "MPA-4.3-10", "MPA-4.3-11", "MPA-4.4-01")
@shows("MPA-4.4-10", "MPA-5.2-01", "MPA-6-02")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_known_fpdus_without_markers(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await bench.start()
    known = [v for v in all_vectors("fpdu") if not v["markers"] and v["ulpdus_hex"]]
    for qp, crc in enumerate((True, False)):
        await bench.connect(qp, crc)
        expected = []
        for vector in known:
            if bool(vector["crc_on"]) == crc:
                bench.deliver(qp, bytes.fromhex(vector["stream_hex"]))
                expected += [bytes.fromhex(text) for text in vector["ulpdus_hex"]]
        assert expected
        bench.llp.announce(qp, 1 << 20)
        assert await bench.wait_for(qp, len(expected)) == expected


@shows("DDP-3-07", "DDP-3-13", "MPA-1.2-01", "MPA-3-08", "MPA-5.1-05", "MPA-A.4-01")
@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_random_fpdus_of_several_connections_arrive_in_order(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await bench.start()
    sent: dict[int, list[bytes]] = {}
    tasks = []
    for qp in range(CONFIG.qps):
        crc = qp != 2
        await bench.connect(qp, crc)
        sent[qp] = [rng.randbytes(random_length(rng)) for _ in range(30)]
        for ulpdu in sent[qp]:
            fpdu = bytearray(frame_fpdu(ulpdu, crc=crc)) if ulpdu else bytearray(b"")
            if not ulpdu:
                fpdu = bytearray(bytes(4) + bytes.fromhex("c74b6748"))
            bench.deliver(qp, bytes(fpdu))
        chunk = [(1, 64), (1, 3000), (1460, 1460), (1, 9000)][qp]
        tasks.append(cocotb.start_soon(bench.announce_in_chunks(qp, chunk, 100)))
    for qp in range(CONFIG.qps):
        received = await bench.wait_for(qp, len(sent[qp]))
        assert received == sent[qp], f"connection {qp}"
    await bench.cycles(200)
    assert not bench.errors
    for qp in range(CONFIG.qps):
        assert bench.llp.released[qp] == len(bench.llp.octets[qp])


@shows("MPA-4.4-07", "MPA-4.4-13", "MPA-4.4-14", "MPA-6-01", "MPA-7.1.1-10", "MPA-8-01")
@shows("MPA-8-08")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_bad_crc_ends_its_connection_only(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await bench.start()
    for qp in range(3):
        await bench.connect(qp)
    good = [rng.randbytes(random_length(rng) + 1) for _ in range(20)]
    for qp in range(3):
        for index, ulpdu in enumerate(good):
            fpdu = bytearray(frame_fpdu(ulpdu))
            if (qp, index) == (1, 7):
                fpdu[rng.randrange(2, len(fpdu))] ^= 1 << rng.randrange(8)
            bench.deliver(qp, bytes(fpdu))
        bench.llp.announce(qp, 1 << 20)
    assert await bench.wait_for(0, len(good)) == good
    assert await bench.wait_for(2, len(good)) == good
    assert await bench.wait_for_error() == (1, SegmentKind.CRC_ERROR)
    requests = len(bench.llp.requests)
    bench.llp.close(1)
    await bench.cycles(1000)
    assert bench.ulpdus[1] == good[:7]
    assert not bench.errors
    assert len(bench.llp.requests) == requests
    assert bench.llp.released[1] <= sum(len(frame_fpdu(ulpdu)) for ulpdu in good[:7])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_too_long_ulpdu_length_is_an_error_at_once(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await bench.start()
    for qp, length in enumerate((64769, 65535)):
        await bench.connect(qp, crc=bool(qp))
        bench.deliver(qp, frame_fpdu(b"good", crc=bool(qp)))
        bench.deliver(qp, length.to_bytes(2, "big") + bytes(100))
        bench.llp.announce(qp, 1 << 20)
        assert await bench.wait_for_error() == (qp, SegmentKind.CRC_ERROR)
        assert bench.ulpdus[qp] == [b"good"]


@shows("MPA-4.1-06", "MPA-4.4-08", "MPA-7.1.1-08")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_crc_is_not_checked_when_off(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await bench.start()
    await bench.connect(3, crc=False)
    sent = [rng.randbytes(random_length(rng) + 1) for _ in range(20)]
    for ulpdu in sent:
        bench.deliver(3, frame_fpdu(ulpdu, crc=False)[:-4] + rng.randbytes(4))
    bench.llp.announce(3, 1 << 20)
    assert await bench.wait_for(3, len(sent)) == sent


@shows("MPA-4.1-04")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_pad_counts_only_in_the_crc(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await bench.start()
    await bench.connect(0)
    sent = [rng.randbytes(length) for length in range(14, 40)]
    for ulpdu in sent:
        covered = frame_fpdu(ulpdu)[: 2 + len(ulpdu)]
        covered += rng.randbytes(-len(covered) % 4)
        bench.deliver(0, covered + crc32c_octets(covered))
    bench.llp.announce(0, 1 << 20)
    assert await bench.wait_for(0, len(sent)) == sent
    assert not bench.errors


@shows("DDP-3-11", "MPA-7.2-02")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_closed_comes_after_all_whole_fpdus(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await bench.start()
    sent = [rng.randbytes(random_length(rng) + 1) for _ in range(10)]
    stream = b"".join(frame_fpdu(ulpdu) for ulpdu in sent)
    for qp, rest in enumerate((b"", frame_fpdu(bytes(500))[:300], b"\0\x20A")):
        await bench.connect(qp)
        bench.deliver(qp, stream + rest)
        bench.llp.announce(qp, 1 << 20)
        bench.llp.close(qp)
    await bench.connect(3)
    bench.llp.close(3)
    closed = dict([await bench.wait_for_error() for _ in range(4)])
    assert closed == {
        0: SegmentKind.CLOSED,
        1: SegmentKind.CLOSED_INSIDE,
        2: SegmentKind.CLOSED_INSIDE,
        3: SegmentKind.CLOSED,
    }
    for qp in range(3):
        assert [item for number, item in bench.log if number == qp] == [*sent, closed[qp]]


@shows("MPA-6-03")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_stream_that_ends_inside_an_fpdu_is_told_apart(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await bench.start()
    for markers in (False, True):
        fpdu = Framer(markers=markers).frame(rng.randbytes(600))
        for octets in (0, 1, 2, 3, 4, 7, 8, 9, 512, 516, len(fpdu) - 1, len(fpdu)):
            qp = rng.randrange(CONFIG.qps)
            await bench.connect(qp, markers=markers)
            bench.deliver(qp, fpdu[:octets])
            # Its octets may be announced long before the end, or with it.
            await bench.announce_in_chunks(qp, rng.choice([(1, 8), (700, 700)]), 20)
            await bench.cycles(rng.choice([0, 300]))
            bench.llp.close(qp)
            inside = 0 < octets < len(fpdu)
            kind = SegmentKind.CLOSED_INSIDE if inside else SegmentKind.CLOSED
            assert await bench.wait_for_error() == (qp, kind), octets
            # Once.
            await bench.cycles(100)
            assert not bench.errors
            await bench.command(qp, QpCommandKind.DESTROY)
    # A connection that was wrong before does not say so.
    await bench.connect(1)
    fpdu = bytearray(frame_fpdu(bytes(100)))
    fpdu[50] ^= 1
    bench.deliver(1, bytes(fpdu + fpdu[:50]))
    bench.llp.announce(1, 1 << 20)
    bench.llp.close(1)
    assert await bench.wait_for_error() == (1, SegmentKind.CRC_ERROR)
    await bench.cycles(1000)
    assert not bench.errors


@shows("DDP-3-13", "MPA-6-03")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_partial_fpdu_does_not_block_others(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await bench.start()
    whole = rng.randbytes(5000)
    for qp in range(2):
        await bench.connect(qp)
    bench.deliver(0, frame_fpdu(whole))
    bench.llp.announce(0, 4000)
    await bench.cycles(100)
    sent = [rng.randbytes(200) for _ in range(20)]
    bench.deliver(1, b"".join(frame_fpdu(ulpdu) for ulpdu in sent))
    bench.llp.announce(1, 1 << 20)
    assert await bench.wait_for(1, 20) == sent
    assert not bench.ulpdus[0]
    before = bench.llp.requested_octets
    bench.llp.announce(0, 500)  # still not enough: not worth a request
    await bench.cycles(200)
    assert bench.llp.requested_octets == before
    bench.llp.announce(0, 1000)
    assert await bench.wait_for(0, 1) == [whole]


QUEUED_AFTER_STOP = 8
"""Cycles after a STOP in which a segment of the connection may still join the others."""


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_stop_discards_and_connect_begins_anew(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await bench.start()
    ends = (QpCommandKind.STOP, QpCommandKind.DESTROY)
    for round_number in range(12):
        await bench.connect(1)
        await bench.connect(2)
        for qp in (1, 2):
            sent = [rng.randbytes(rng.randint(14, 4000)) for _ in range(10)]
            bench.deliver(qp, b"".join(frame_fpdu(ulpdu) for ulpdu in sent))
            bench.llp.announce(qp, 1 << 20)
        await bench.cycles(rng.randint(0, 1500))
        for qp in (1, 2):
            await bench.command(qp, ends[round_number % 2])
        await bench.cycles(QUEUED_AFTER_STOP)
        for _ in range(60):
            await bench.cycles(1)
            assert not dut.queued.value, "what waits for it does not know of this segment"
        for qp in (1, 2):
            await bench.command(qp, QpCommandKind.DESTROY)
        while len(bench.segments):  # a segment may have been under way
            await bench.cycles(10)
        await bench.cycles(2500)
        counts = [len(bench.ulpdus[qp]) for qp in (1, 2)]
        requests = len(bench.llp.requests)
        await bench.cycles(500)
        assert [len(bench.ulpdus[qp]) for qp in (1, 2)] == counts
        assert len(bench.llp.requests) == requests
        for qp in (1, 2):
            bench.ulpdus[qp].clear()
        last = [rng.randbytes(random_length(rng) + 1) for _ in range(5)]
        await bench.connect(1)
        bench.deliver(1, b"".join(frame_fpdu(ulpdu) for ulpdu in last))
        bench.llp.announce(1, 1 << 20)
        assert await bench.wait_for(1, 5) == last
        bench.ulpdus[1].clear()
        await bench.command(1, QpCommandKind.DESTROY)
    assert not bench.errors


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_segment_comes_seven_cycles_after_the_last_beat(dut: Any) -> None:
    if parameter("PATTERN") != "always":
        return
    rng = seeded_random()
    bench = Bench(dut, rng, "always")
    await bench.start()
    await bench.connect(0)
    for length in (1, 14, 18, 46, 47, 70, 71, 1500):
        bench.deliver(0, frame_fpdu(rng.randbytes(length)))
        bench.llp.announce(0, 1 << 20)
        last_beat = 0
        while not dut.segment__valid.value:
            if dut.rx__valid.value and dut.rx__ready.value:
                last_beat = bench.now()
            await RisingEdge(dut.clk)
        assert bench.now() - last_beat == 7, length
        await bench.cycles(60)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_longest_fpdus_fill_the_store_and_pass(dut: Any) -> None:
    if parameter("PATTERN") != "always":
        return
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await bench.start()
    await bench.connect(0)
    sent = [rng.randbytes(length) for length in (64768, 64767, 64766, 100, 64768)]
    bench.deliver(0, b"".join(frame_fpdu(ulpdu) for ulpdu in sent))
    bench.segments.paused = True
    bench.llp.announce(0, 1 << 20)
    await bench.cycles(20000)
    bench.segments.paused = False
    assert await bench.wait_for(0, len(sent)) == sent


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_fpdus_are_released_in_any_order(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"), hold=0.3)
    await bench.start()
    sent: dict[int, list[bytes]] = {}
    for qp in range(CONFIG.qps):
        await bench.connect(qp)
        # More octets than the store has, and more FPDUs than it has numbers
        lengths = [random_length(rng) for _ in range(40)] + [rng.randint(1, 60)] * 100
        sent[qp] = [rng.randbytes(length + 1) for length in lengths]
        bench.deliver(qp, b"".join(map(frame_fpdu, sent[qp])))
        bench.llp.announce(qp, 1 << 20)
    for qp in range(CONFIG.qps):
        assert await bench.wait_for(qp, len(sent[qp])) == sent[qp], f"connection {qp}"
    assert bench.passed > 50


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_backlog_streams_at_full_rate(dut: Any) -> None:
    if parameter("PATTERN") != "always":
        return
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, "always", latency=(20, 20), place=False)
    await bench.start()
    cases: list[tuple[str, list[int]]] = [
        ("FPDUs of 1460 octets", [1454] * 40),
        ("FPDUs of 1464 octets", [1458] * 40),
        ("FPDUs of 20 to 100 octets", [rng.randint(14, 94) for _ in range(200)]),
    ]
    for qp, (name, lengths) in enumerate(cases):
        await bench.connect(qp)
        fpdus = [frame_fpdu(rng.randbytes(n)) for n in lengths]
        bench.deliver(qp, b"".join(fpdus))
        stalls = bench.rx_stalls
        bench.llp.announce(qp, 1 << 20)
        start = bench.now()
        while len(bench.ulpdus[qp]) < len(lengths):
            await RisingEdge(dut.clk)
        cycles = bench.now() - start
        # Each FPDU starts with a word of its own: some words have only half a beat.
        words = sum(-(-len(fpdu) // 8) for fpdu in fpdus)
        beats = -(-len(bench.llp.octets[qp]) // 8)
        dut._log.info(f"{name}: {words} words, {beats} beats, {cycles} cycles")
        assert cycles <= words + 80
        assert bench.rx_stalls - stalls <= words - beats + 2


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, MpaReceiver(CONFIG), __name__, request.param)


@each_check(globals())
def test_receiver(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
