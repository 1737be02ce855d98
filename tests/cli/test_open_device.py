"""The device of a command: what is refused before it is built, and what is told of a build."""

import io
import socket
import sys
from contextlib import contextmanager

import pytest

from stagecoach.cli.main import main
from stagecoach.cli.open_device import built_device, open_device, progress_bar
from stagecoach.host_driver import locate
from stagecoach.host_driver.locate import Locator
from stagecoach.sim import build, build_report
from stagecoach.sim.build_report import BuildReport, told
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.transport import SimulatedDevice
from stagecoach.sim.verilator import BuildError

CARD = "sim://?wire=pair:hosts&ip=192.0.2.2/24&tcp=reference"
BAD = "no such..host"


class Opened(Exception):
    """The device would be built now."""


@pytest.fixture
def opens(monkeypatch):
    def opened(*_, **__):
        raise Opened

    monkeypatch.setattr(Locator, "open", opened)


@pytest.mark.parametrize(
    "arguments",
    [
        ["rping", "-c", "-a", BAD],
        ["rping", "-s", "-a", BAD],
        ["perftest", "ib_write_bw", BAD],
        ["perftest", "ib_write_bw", "--source_ip", BAD],
        ["perf", "write", "-c", "-a", BAD],
        ["perf", "write", "-s", "-a", BAD],
        ["nfs", "ls", "nfs+rdma://no..host/"],
        ["nfs", "serve", "/", "-a", BAD],
    ],
)
def test_a_host_without_an_address_is_refused_before_a_build(arguments, opens, capsys):
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith(f"stagecoach {arguments[0]}: no address of ")


@pytest.mark.parametrize("host", [BAD, "::1"])
def test_a_card_needs_an_ipv4_address(host, opens, capsys):
    assert main(["ip", "ping", host, "--device", CARD]) == 1
    assert f"stagecoach ip: no IPv4 address of {host!r} is known: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["rping", "-c", "-a", "::1"],
        ["rping", "-s"],
        ["perf", "write"],
        ["ip", "ping", "192.0.2.1", "--device", CARD],
    ],
)
def test_a_host_with_an_address_is_none_of_its_business(arguments, opens):
    with pytest.raises(Opened):
        main(arguments)


def test_the_reason_is_that_of_the_resolver(opens, monkeypatch, capsys):
    def unknown(*_):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert main(["rping", "-c", "-a", "1.2.3.999"]) == 1
    assert capsys.readouterr().err == (
        "stagecoach rping: no address of '1.2.3.999' is known: Name or service not known\n"
    )


@pytest.fixture
def builds(monkeypatch, tmp_path):
    """Lets a build go through the steps that the list has."""
    steps: list[str] = []

    def build_device(*_, progress, **__):
        for step in steps:
            progress(step)
        return tmp_path

    monkeypatch.setattr(build, "build_device", build_device)
    return steps


STEPS = ["export Verilog", "translate Verilog to C++", "compile 1 of 2", "compile 2 of 2"]


def lines_of_a_build(folder):
    """Of one that takes no time: counts come too soon after the line before."""
    begin = (
        f"stagecoach: building the simulated device: takes 1 to 3 minutes, once; kept in {folder}"
    )
    told = [f"stagecoach:   0 s: {step}" for step in STEPS[:2]]
    return [begin, *told, "stagecoach: the simulated device is built: 0 s"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Of a cache that is empty."""
    monkeypatch.setenv("STAGECOACH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(build_report, "LINE_SECONDS", 1000.0)
    return tmp_path / "cache"


@pytest.mark.parametrize("steps", [[], STEPS])
def test_without_a_terminal_lines_tell_a_command_of_a_build(steps, builds, folder, capsys):
    builds += steps
    with progress_bar() as bar:
        built_device(bar)
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", lines_of_a_build(folder) if steps else [])


def test_a_command_shows_how_far_the_start_of_a_memory_is(monkeypatch):
    """Each step has a bar of its own."""
    seen = []

    def start(*_, memory_progress, **__):
        for step in (("levelling", 0, 2), ("levelling", 2, 2), ("address pins", 1, 4)):
            memory_progress(*step)

    @contextmanager
    def shown():
        with progress_bar() as bar:
            yield bar
            seen.extend((task.description, task.completed, task.total) for task in bar.tasks)

    monkeypatch.setattr(locate, "SerialNic", start)
    monkeypatch.setattr("stagecoach.cli.open_device.progress_bar", shown)
    open_device(locate.parse_device("serial:///dev/ttyUSB0?ip=192.0.2.10/24"))
    assert seen == [
        ("start the board's memory: levelling", 2, 2),
        ("start the board's memory: address pins", 1, 4),
    ]


class Built(Exception):
    """The device would start now."""


@pytest.mark.parametrize("steps", [[], STEPS])
@pytest.mark.parametrize("followed", [False, True])
def test_a_program_is_told_of_a_build_that_it_does_not_follow(
    steps, followed, builds, folder, monkeypatch, capsys
):
    def start(*_, **__):
        raise Built

    builds += steps
    monkeypatch.setattr(SimulatedDevice, "_start", start)
    monkeypatch.setattr(SimulatedNic, "_start", start)
    for open_one in (SimulatedDevice, lambda **more: SimulatedNic(CARD, **more)):
        seen: list[str] = []
        with pytest.raises(Built):
            open_one(progress=seen.append if followed else None)
        assert seen == (steps if followed else [])
        out, err = capsys.readouterr()
        told = steps and not followed
        assert (out, err.splitlines()) == ("", lines_of_a_build(folder) if told else [])


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_the_steps_share_a_line(folder):
    screen = Terminal()
    report = BuildReport(screen)
    for step in STEPS:
        report(step)
    report.end()
    begin, *steps, end = screen.getvalue().split("\r")
    assert begin == lines_of_a_build(folder)[0] + "\n"
    assert steps == [f"stagecoach:   0 s: {step}\x1b[K" for step in STEPS]
    assert end == "\x1b[Kstagecoach: the simulated device is built: 0 s\n"


def test_a_build_that_fails_leaves_an_empty_line(folder, monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with pytest.raises(BuildError), told(None) as report:
        assert report is not None
        report(STEPS[0])
        raise BuildError("g++ ended")
    assert screen.getvalue().split("\r")[-1] == "\x1b[K"


def test_a_closed_standard_error_does_not_stop_a_build(folder):
    out = io.StringIO()
    report = BuildReport(out)
    out.close()
    report(STEPS[0])
    report.end()
