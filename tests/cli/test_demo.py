"""`stagecoach demo`: what it prints, and files that cross between two devices."""

import json
import os
from pathlib import Path

import pytest

from stagecoach.cli.demo import command
from stagecoach.cli.demo.end import DemoError
from stagecoach.cli.demo.ends import Job, Measurement
from stagecoach.cli.demo.run import Demo, Result
from stagecoach.cli.main import main
from stagecoach.sim import build
from stagecoach.sim.build import build_device
from stagecoach.sim.capture.decode import SeenFpdu, Startup, decode_file
from tests.cli.processes import run
from tests.sim.capture.tshark import verdict

pytestmark = pytest.mark.usefixtures("compiled_device")


def test_a_fifo_is_refused_at_once(tmp_path, capsys):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(SystemExit) as caught:
        main(["demo", str(fifo)])
    assert caught.value.code == 2
    assert "not a regular file" in capsys.readouterr().err


def test_a_failed_build_is_a_named_error(monkeypatch, capsys):
    def fail(*_: object, **__: object) -> Path:
        raise build.BuildError("the C++ compiler 'g++' is not installed")

    monkeypatch.setattr(build, "build_device", fail)
    assert main(["demo"]) == 1
    _, err = capsys.readouterr()
    assert err.splitlines()[-1] == ("stagecoach demo: the C++ compiler 'g++' is not installed")


def test_the_table_fits_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    gib = 1 << 30
    rows = [Measurement("RDMA Write", gib, 743_000, 136_000_000, 400.0)]
    command._print_demo("data", gib, 1460, Result(rows, "0" * 64, True), [])
    out = capsys.readouterr().out
    assert "…" not in out
    assert "sim." in out and "1,073,741,824" in out and "136,000,000" in out
    assert "with its waiting for the other process" in out


def test_the_table_says_that_waiting_for_a_network_is_not_counted(capsys):
    row = Measurement("RDMA Write", 1, 1, 1, 1.0, segments=2, retransmissions=1)
    command._print_demo("data", 1, 1460, Result([row], "0" * 64, True), [])
    out = capsys.readouterr().out
    assert "without its waiting for the network" in out and "again" in out


def test_a_board_is_told_of_at_its_own_clock(capsys):
    row = Measurement("RDMA Write", 1000, 2, 500, 1.0, clock_hz=60e6)
    result = Result([row], "0" * 64, True)
    command._print_demo("data", 1000, 1460, result, [])
    out = capsys.readouterr().out
    assert "60 MHz" in out and "156" not in out and " 0.96 " in out
    (operation,) = command._demo_as_json("data", 1000, 1460, result, [])["operations"]
    assert (operation["clock_hz"], operation["gbit_per_second"]) == (60e6, 0.96)
    assert "gbit_per_second_at_156_25_mhz" not in operation


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("markers", [False, True])
@pytest.mark.parametrize("octets", [0, 1, 300_001])
def test_a_file_crosses(octets, markers, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(number * number >> 3 & 255 for number in range(octets)))
    capture = tmp_path / "demo.pcapng"
    options = ["--output", str(tmp_path), "--emss", "1460", *["--markers"] * markers]
    ran = run("demo", str(path), *options, "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["octets"] == octets
    rows = {row["operation"]: row for row in found["operations"]}
    assert list(rows) == ["RDMA Write", "Send", "RDMA Read"]
    # 1460 octets of TCP payload are 1440 of a tagged segment (RFC 5044, 4.5), and up to three
    # Markers take four octets each.
    segments = max(1, -(-octets // (1428 if markers else 1440)))
    assert rows["RDMA Write"]["fpdus"] == segments
    assert rows["RDMA Read"]["fpdus"] == segments + 1
    assert str(capture) in found["files"]

    seen = verdict(capture)
    assert (seen.malformed, seen.bad_crc, seen.bad_checksums, seen.sequence_trouble) == (
        0,
        0,
        0,
        0,
    )
    assert (seen.requests, seen.replies) == (1, 1)
    fpdus = [item for item in decode_file(capture).items if isinstance(item, SeenFpdu)]
    assert len(fpdus) == 2 * segments + 1 + 3
    assert not any(fpdu.problems for fpdu in fpdus)
    # tshark loses its place after a Marker that stands exactly between two FPDUs.
    assert seen.good_crc == len(fpdus) or (markers and 0 < seen.good_crc < len(fpdus))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (["--no-crc", "--revision", "1"], (False, 1, False)),
        (["--peer-to-peer"], (True, 2, True)),
    ],
)
def test_both_ends_ask_for_what_they_are_told(options, asked, tmp_path):
    ran = run("demo", "--size", "1", "--output", str(tmp_path), *options)
    assert ran.returncode == 0, ran.stderr
    items = decode_file(tmp_path / "demo.pcapng").items
    frames = [item.frame for item in items if isinstance(item, Startup)]
    for frame in frames:
        peer_to_peer = frame.enhanced is not None and frame.enhanced.peer_to_peer
        assert (frame.crc, frame.revision, peer_to_peer) == asked
    assert len(frames) == 2 and not any(item.problems for item in items)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_process_that_dies_ends_both(tmp_path):
    library = build_device()
    job = Job(None, 8 << 20, 1460, library, library, tmp_path / "unfinished.pcapng")

    def kill(operation: str, octets: int) -> None:
        demo.processes[0].kill()

    demo = Demo(job, kill)
    with pytest.raises(DemoError, match=r"sink: the process ended with exit status -9"):
        demo.run()
    assert not any(process.is_alive() for process in demo.processes)
