"""The `stagecoach` command: help, bad input, and how errors are told."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from stagecoach.cli.info import command as info
from stagecoach.cli.main import main
from stagecoach.host_driver import StagecoachError

ROOT = Path(__file__).parents[2]


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
        (["demo", "--size", "big"], "invalid size 'big' (expected a size such as 4096 or 64KiB)"),
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
