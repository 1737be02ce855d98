"""The `stagecoach` command: bad input without a device, the demonstration with two."""

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stagecoach.cli.demo import command as demo
from stagecoach.cli.demo.ends import Measurement
from stagecoach.cli.demo.run import Result
from stagecoach.cli.info import command as info
from stagecoach.cli.main import main
from stagecoach.cli.options import parse_size
from stagecoach.host_driver import StagecoachError
from stagecoach.host_driver.enums import WROpcode
from stagecoach.host_driver.registers import INTERFACE

pytestmark = pytest.mark.usefixtures("compiled_device")

ROOT = Path(__file__).parents[2]
BUILDS_A_DEVICE = [pytest.mark.slow, pytest.mark.timeout(1800)]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stagecoach.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("text", "octets"),
    [("0", 0), ("1000", 1000), ("4MiB", 4 << 20), ("64 KiB", 64 << 10), ("1GiB", 1 << 30)],
)
def test_sizes(text, octets):
    assert parse_size(text) == octets


@pytest.mark.parametrize("text", ["", "-1", "4MB", "1.5MiB", "many"])
def test_other_sizes_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="allowed: a number of bytes"):
        parse_size(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["--nosuch"], "stagecoach: unrecognized arguments: --nosuch; allowed before COMMAND: -h"),
        (["-x", "info"], "stagecoach: unrecognized arguments: -x; allowed before COMMAND: -h"),
        (["info", "foo"], "stagecoach info: unrecognized arguments: foo\n"),
        (
            ["perf", "--size", "0"],
            "stagecoach perf: unrecognized arguments: --size; allowed before",
        ),
        (["perf", "--size=0"], "unrecognized arguments: --size=0; allowed before OPERATION: -h"),
        (["demo", "/no/such/file"], "cannot read /no/such/file: No such file or directory"),
        (["demo", "/"], "cannot read /: Is a directory"),
        (["demo", "/dev/zero"], "cannot read /dev/zero: not a regular file"),
        (["demo", "/proc/cpuinfo"], "cannot read /proc/cpuinfo: it has content but no size"),
        (["demo", "--size", "9000GiB"], "9000GiB is too large; allowed: 0 to 1GiB"),
        (["demo", "--size", "big"], "size is 'big'; allowed: a number of bytes"),
        (["demo", "--emss", "100"], "EMSS is 100; allowed: 128 to 65535"),
        (["demo", "--emss", "x"], "EMSS is x; allowed: 128 to 65535"),
        (["demo", "--size", "1", __file__], "allowed: FILE or --size"),
        (["info", "--colour"], "unrecognized arguments: --colour"),
        (["verilog", "QPS=5"], "verilog: RnicConfig.qps is 5; allowed: a power of two"),
        (["verilog", "LANES=4"], "verilog: 'LANES=4' is not a size of the device; allowed: DATA_"),
        (["verilog", "--prefix", "4x"], "verilog: PREFIX is '4x'; allowed: letters, digits and _"),
        (["cache", "burn"], "invalid choice: 'burn'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.endswith("\n")
    assert message in err


def test_a_fifo_is_refused_at_once(tmp_path, capsys):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(SystemExit) as caught:
        main(["demo", str(fifo)])
    assert caught.value.code == 2
    assert "not a regular file" in capsys.readouterr().err


def test_an_error_of_the_system_is_one_line_and_status_1():
    program = (
        "import sys; from stagecoach.cli import main; from stagecoach.cli.info import command; "
        "command.info = lambda *_: print('sizes') or 0; sys.exit(main.main(['info']))"
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "stagecoach info: No space left on device\n"


def test_the_table_fits_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    gib = 1 << 30
    rows = [Measurement("RDMA Write", gib, 743_000, 136_000_000, 400.0)]
    demo._print_demo("data", gib, 1460, Result(rows, "0" * 64, True), [])
    out = capsys.readouterr().out
    assert "…" not in out
    assert "sim." in out and "1,073,741,824" in out and "136,000,000" in out
    assert "with its waiting for the other process" in out


def test_the_table_says_that_waiting_for_a_network_is_not_counted(capsys):
    row = Measurement("RDMA Write", 1, 1, 1, 1.0, segments=2, retransmissions=1)
    demo._print_demo("data", 1, 1460, Result([row], "0" * 64, True), [])
    out = capsys.readouterr().out
    assert "without its waiting for the network" in out and "again" in out


@pytest.mark.parametrize("first", ["--version", "--vers", "-h", "--he"])
def test_an_option_before_a_command_may_be_shortened(first, capsys):
    with pytest.raises(SystemExit) as caught:
        main([first])
    assert caught.value.code == 0


HELPED = ("demo", "info", "rping", "perftest", "verilog", "cache")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], *([name, "--help"] for name in HELPED)],
)
def test_help_is_everywhere(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: stagecoach")
    assert err == ""


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"stagecoach {importlib.metadata.version('stagecoach')}\n"


def test_a_failed_build_is_a_named_error(monkeypatch, capsys):
    from stagecoach.sim import build

    def fail(*_: object, **__: object) -> Path:
        raise build.BuildError("the C++ compiler 'g++' is not installed")

    monkeypatch.setattr(build, "build_device", fail)
    assert main(["demo"]) == 1
    _, err = capsys.readouterr()
    assert err.splitlines()[-1] == ("stagecoach demo: the C++ compiler 'g++' is not installed")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            FileNotFoundError(2, "No such file or directory", "/no/file"),
            "/no/file: No such file",
        ),
        (TimeoutError("cannot connect: no answer"), "cannot connect: no answer"),
        (StagecoachError("what is wrong; allowed: what is right"), "what is wrong; allowed: what"),
        (OSError(), "failed with OSError"),
    ],
)
def test_an_error_is_told_by_its_text_alone(monkeypatch, capsys, error, line):
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(info, "info", fail)
    assert main(["info"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"stagecoach info: {line}") and err.count("\n") == 1


def test_an_interrupt_is_told_even_if_closing_fails(monkeypatch, capsys):
    def fail(*_: object) -> int:
        try:
            raise KeyboardInterrupt
        finally:
            raise BufferError("half of it is closed")

    monkeypatch.setattr(info, "info", fail)
    assert main(["info"]) == 130
    assert capsys.readouterr().err == "stagecoach info: interrupted\n"


class TestDevice:
    """What needs a built device."""

    pytestmark = BUILDS_A_DEVICE

    def test_info_tells_sizes_and_versions(self):
        ran = run("info", "--json")
        assert ran.returncode == 0, ran.stderr
        found = json.loads(ran.stdout)
        assert found["device"]["max_qp"] == found["configuration"]["qps"] == 64
        assert found["versions"]["register description"] == "3.1"
        assert found["versions"]["digest of the interface"] == f"0x{INTERFACE.constant:08X}"
        assert "RDMA_READ" in found["capabilities"]["operations"]
        assert set(found["capabilities"]["operations"]) == {opcode.name for opcode in WROpcode}
        table = run("info")
        assert table.returncode == 0
        assert "max_qp_rd_atom" in table.stdout

    @pytest.mark.parametrize("markers", [False, True])
    @pytest.mark.parametrize("octets", [0, 1, 300_001])
    def test_a_file_crosses(self, octets, markers, tmp_path):
        from stagecoach.sim.capture.decode import SeenFpdu, decode_file
        from tests.sim.capture.tshark import verdict

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

    @pytest.mark.parametrize(
        ("options", "asked"),
        [
            (["--no-crc", "--revision", "1"], (False, 1, False)),
            (["--peer-to-peer"], (True, 2, True)),
        ],
    )
    def test_both_ends_ask_for_what_they_are_told(self, options, asked, tmp_path):
        from stagecoach.sim.capture.decode import Startup, decode_file

        ran = run("demo", "--size", "1", "--output", str(tmp_path), *options)
        assert ran.returncode == 0, ran.stderr
        items = decode_file(tmp_path / "demo.pcapng").items
        frames = [item.frame for item in items if isinstance(item, Startup)]
        for frame in frames:
            peer_to_peer = frame.enhanced is not None and frame.enhanced.peer_to_peer
            assert (frame.crc, frame.revision, peer_to_peer) == asked
        assert len(frames) == 2 and not any(item.problems for item in items)

    def test_a_process_that_dies_ends_both(self, tmp_path):
        from stagecoach.cli.demo.end import DemoError
        from stagecoach.cli.demo.ends import Job
        from stagecoach.cli.demo.run import Demo
        from stagecoach.sim.build import build_device

        library = build_device()
        job = Job(None, 8 << 20, 1460, library, library, tmp_path / "unfinished.pcapng")

        def kill(operation: str, octets: int) -> None:
            demo.processes[0].kill()

        demo = Demo(job, kill)
        with pytest.raises(DemoError, match=r"sink: the process ended with exit status -9"):
            demo.run()
        assert not any(process.is_alive() for process in demo.processes)
