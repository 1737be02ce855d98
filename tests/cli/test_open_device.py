"""The device of a command: what is refused before it is built, and what is told of a build."""

import logging
import socket

import pytest

from stagecoach.cli.main import main
from stagecoach.cli.open_device import built_device, progress_bar
from stagecoach.host_driver.locate import Locator
from stagecoach.sim import build, transport
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.transport import BUILDING, SimulatedDevice

CARD = "sim://?wire=pair:hosts&ip=192.0.2.2/24"
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


@pytest.mark.parametrize(("steps", "told"), [([], ""), (STEPS, f"{BUILDING}\n")])
def test_without_a_terminal_one_line_tells_of_a_build(steps, told, builds, capsys):
    builds += steps
    with progress_bar() as bar:
        built_device(bar)
    assert capsys.readouterr() == ("", told)


class Built(Exception):
    """The device would start now."""


@pytest.mark.parametrize("steps", [[], STEPS])
@pytest.mark.parametrize("followed", [False, True])
def test_a_program_is_told_of_a_build_that_it_does_not_follow(
    steps, followed, builds, monkeypatch, caplog, capsys
):
    def start(*_, **__):
        raise Built

    builds += steps
    monkeypatch.setattr(SimulatedDevice, "_start", start)
    monkeypatch.setattr(SimulatedNic, "_start", start)
    seen: list[str] = []
    for open_one in (SimulatedDevice, lambda **more: SimulatedNic(CARD, **more)):
        caplog.clear()
        seen.clear()
        with pytest.raises(Built):
            open_one(progress=seen.append if followed else None)
        records = [each for each in caplog.records if each.name == transport.__name__]
        assert [each.getMessage() for each in records] == [BUILDING] * bool(steps and not followed)
        assert all(each.levelno == logging.WARNING for each in records)
        assert seen == (steps if followed else [])
    assert capsys.readouterr().out == ""
