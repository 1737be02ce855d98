"""Engine against engine on a wire that does everything wrong: every octet arrives."""

import json
import os
import random

import pytest
from rich.console import Console

from stagecoach.sim.network.gateware_card import GatewareCard
from stagecoach.sim.soak_tcp import __main__ as command
from stagecoach.sim.soak_tcp.chunk import run_chunk
from stagecoach.sim.wire import line
from tests.support.compiled_nic import NIC_CONFIG, nic_library

CHUNKS = 2
SEGMENTS = 10_000
"""Of a chunk."""

pytestmark = pytest.mark.usefixtures("compiled_nic")


def seed() -> int:
    """The seed of all chunks: STAGECOACH_SEED, or always the same."""
    return int(os.environ.get("STAGECOACH_SEED", "0")) or 20261


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.requirement("TCP-MUST-2", "TCP-MUST-3", "TCP-3.4-01", "TCP-3.4-02", "RTO-5.4-01")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_all_octets_arrive_and_every_frame_is_counted(chunk):
    print(f"STAGECOACH_SEED={seed()}, chunk {chunk}")
    report = run_chunk(seed(), chunk, SEGMENTS, nic_library())
    Console().print(report.tables())
    assert not report.failures, "\n\n".join(report.failures)
    assert report.total >= SEGMENTS
    for cause in ("lost", "duplicated", "reordered", "corrupted"):
        assert report.wire[cause], cause
    for kind in ("retransmitted", "with_sack_blocks", "wrapped", "fin", "rst"):
        assert report.segments[kind], kind
    assert report.fates["TCP_CHECKSUM"]
    assert report.driver["ended_closed"]
    assert report.driver["ended_reset"]


def swap_last_words(frame: bytes, bit: int) -> bytes:
    """Another frame with the same checksum."""
    return frame[:-4] + frame[-2:] + frame[-4:-2]


def test_octets_that_change_on_the_wire_are_found(monkeypatch):
    monkeypatch.setattr(line, "_with_flipped", swap_last_words)
    report = run_chunk(1, 0, 3000, nic_library())
    (failure,) = report.failures
    assert failure.startswith("SEED=1, chunk 0:\n")


def test_a_frame_that_is_not_counted_is_found(monkeypatch):
    taken = GatewareCard._receive
    rng = random.Random(1)

    def lose(card: GatewareCard) -> bytes | None:
        frame = taken(card)
        if frame is not None and rng.random() < 0.01:
            card.log.received += 1
            return None
        return frame

    monkeypatch.setattr(GatewareCard, "_receive", lose)
    report = run_chunk(1, 0, 500, nic_library())
    (failure,) = report.failures
    assert "frames arrived" in failure


def test_the_command_writes_what_it_counted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "CHUNK_SEGMENTS", 200)
    assert command.CONFIG == NIC_CONFIG
    assert command.main(["--segments", "300", "--seed", "5", "--jobs", "1"]) == 0
    results = json.loads((tmp_path / "build" / "soak_tcp.json").read_text())
    assert (results["seed"], results["chunks_total"], results["failures"]) == (5, 2, [])
    assert results["segments_total"] == results["sent_segments"]["segments"] >= 300
    assert "SEED=5 SEGMENTS=300" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("segments", "sizes"), [(1, [1]), (5000, [5000]), (12_000, [5000, 5000, 2000])]
)
def test_chunks_have_all_segments(segments, sizes):
    assert command.chunk_sizes(segments) == sizes
