"""Every command with NICs that have the TCP engine in gateware, which is their default."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stagecoach.cli.main import main

FAST = False  # runs whole devices

pytestmark = [pytest.mark.usefixtures("compiled_nic"), pytest.mark.timeout(300)]

SECONDS = 200
COMMAND = [sys.executable, "-m", "tests.support.nic_command"]
ROOT = Path(__file__).parents[2]
CONTENT = bytes(range(251)) * 500
SERVER = "192.0.2.1"


class Wire:
    """Two addresses of NICs on it: of a server, which comes first, and of its client."""

    def __init__(self, kind: str, folder: Path) -> None:
        pair = f"pair:{folder.name}"
        unix = f"unix:{folder}/wire"
        there, here = (pair, pair) if kind == "pair" else (f"unix-listen:{folder}/wire", unix)
        self.pcap = folder / "wire.pcapng"
        self.server = f"sim://?wire={there}&ip={SERVER}/24&pcap={self.pcap}"
        self.client = f"sim://?wire={here}&ip=192.0.2.2/24"


@pytest.fixture
def wire(request: pytest.FixtureRequest, tmp_path: Path) -> Wire:
    return Wire(getattr(request, "param", "unix"), tmp_path)


BOTH = pytest.mark.parametrize("wire", ["pair", "unix"], indirect=True)


@contextmanager
def running(*arguments: str, until: str, stream: str = "stderr") -> Iterator[Any]:
    """A command, from a line that it prints on; ended by SIGINT as by a user."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=ROOT,
        text=True,
        **{stream: subprocess.PIPE},  # type: ignore[call-overload]
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            line = getattr(process, stream).readline()
            assert until in line, line
            yield process
            process.send_signal(signal.SIGINT)
            process.wait(SECONDS)
        finally:
            process.kill()


def run(*arguments: str, status: int = 0) -> str:
    """What a command prints that ends by itself."""
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def seen(address: str) -> dict[str, Any]:
    """What `stagecoach ip --json` shows of a network with an established connection."""
    give_up = time.monotonic() + SECONDS
    while time.monotonic() < give_up:
        for network in json.loads(run("ip", "--json")):
            if network["address"] == f"{address}/24" and any(
                each["info"] is not None and each["info"]["segments_received"] > 5
                for each in network["connections"]
            ):
                return network
        time.sleep(0.1)
    raise AssertionError(f"no network at {address}")


@BOTH
def test_rping_and_what_ip_and_capture_show_of_it(wire, folder, capsys):
    serve = ["rping", "-s", "-d", "-P", "--device", wire.server]
    ping = ["rping", "-c", "-a", SERVER, "-V", "-d", "-C", "1000000", "--device", wire.client]
    with running(*serve, until="listening at port 7174"):
        with running(*ping, until="connected to 192.0.2.1:7174"):
            networks = [seen(SERVER), seen("192.0.2.2")]
            assert main(["ip"]) == 0
            assert main(["capture"]) == 0
    for network in networks:
        assert network["engine"] == "gateware" and network["carrier"] == "up"
        (info,) = (each["info"] for each in network["connections"] if each["info"] is not None)
        assert info["state"] == "ESTABLISHED"
        assert info["segments_sent"] > 5 and info["octets_sent"] > 100
        assert info["octets_received"] > 100
        assert 0 <= info["retransmissions"] < info["segments_sent"]
        assert info["smoothed_rtt_us"] > 0 and info["rto_us"] >= 200_000
        assert info["congestion_window"] >= 1460 and info["maximum_segment_size"] == 1460
        assert info["send_window"] > 100_000 and info["receive_window"] > 100_000
    out = capsys.readouterr().out
    assert "tcp gateware" in out and "neighbour 192.0.2.1" in out
    assert re.search(r"rto:\d+ rtt:[\d.]+/[\d.]+ mss:1460 cwnd:\d+ .* segs_out:[1-9]", out)
    assert re.search(r"IP 192\.0\.2\.2:\d+ > 192\.0\.2\.1:7174: \[P\.\] seq", out)
    assert main(["decode", str(wire.pcap)]) == 0
    assert "no problem" in capsys.readouterr().out.splitlines()[-1]


def test_ping(wire):
    serve = ["rping", "-s", "-d", "-P", "--device", wire.server]
    with running(*serve, until="listening at port 7174"):
        told = run("ip", "ping", SERVER, "-c", "2", "-W", "30", "--device", wire.client)
    assert "2 sent, 2 received, 0 % lost" in told


@pytest.mark.parametrize("operation", ["write", "read", "send", "atomic"])
def test_perf(operation, wire, tmp_path):
    serve = ["perf", operation, "-s", "--device", wire.server]
    sizes = [] if operation == "atomic" else ["--sizes", "64,4KiB"]
    measure = ["perf", operation, "-c", "-a", SERVER, *sizes, "--messages", "256"]
    figures = tmp_path / "figures.json"
    files = ["--plot", str(tmp_path / "plot"), "--json", str(figures)]
    with running(*serve, until="listening at port 7175"):
        run(*measure, *files, "--device", wire.client)
    assert json.loads(figures.read_text())


def test_files_over_nfs(wire, tmp_path):
    there = tmp_path / "there"
    (there / "folder").mkdir(parents=True)
    (there / "file").write_bytes(CONTENT)
    serve = ["nfs", "serve", str(there), "--export", "/data", "--no-tcp", "--no-root-squash"]
    url, device = f"nfs+rdma://{SERVER}/data", ["--device", wire.client]
    with running(*serve, "--device", wire.server, until="serving nfs+rdma://", stream="stdout"):
        assert run("nfs", "ls", url, *device).split() == ["file", "folder"]
        run("nfs", "get", f"{url}/file", str(tmp_path / "got"), *device)
        run("nfs", "put", str(tmp_path / "got"), f"{url}/again", *device)
    assert (tmp_path / "got").read_bytes() == (there / "again").read_bytes() == CONTENT


def test_top(wire):
    serve = ["rping", "-s", "-d", "-P", "--device", wire.server]
    ping = ["rping", "-c", "-a", SERVER, "-C", "20", "-V", "--device", wire.client]
    with running(*serve, until="listening at port 7174"):
        shown = run("top", "--once", "--json", "--", *COMMAND, *ping)
    (device,) = (json.loads(line) for line in shown.splitlines() if line.startswith("{"))
    assert device["kind"] == "simulated NIC"
    assert device["total"]["octets_sent"] > 20 * 16


def test_info_and_devices_name_the_engine(wire):
    device = ["--device", wire.client.replace("unix:", "unix-listen:")]
    found = json.loads(run("info", "--json", *device))
    assert found["network"]["tcp"] == "gateware"
    rows = json.loads(run("devices", "--json", *device))
    (row,) = (row for row in rows if row["kind"] == "sim")
    assert (row["state"], row["configuration"]["tcp"]) == ("ready", "gateware")


def test_the_demonstration(tmp_path):
    arguments = ["demo", "--nic", "0.005", "--size", "256KiB", "-o", str(tmp_path), "--json"]
    found = json.loads(run(*arguments).partition("\nstagecoach:")[0])
    write, _, read = found["operations"]
    assert write["segments"] > 180 and read["segments"] > 180
    assert sum(row["retransmissions"] for row in found["operations"]) > 0
    assert read["rtt_us"] > 0
    assert (tmp_path / "demo-nic.pcapng").stat().st_size > 256 << 10


def test_a_card_that_is_not_built_is_not_built_to_be_listed(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("STAGECOACH_CACHE", str(tmp_path / "empty"))
    device = f"sim://?wire=pair:{tmp_path.name}&ip=192.0.2.1/24"
    assert main(["devices", "--json", "--device", device]) == 0
    (row,) = (each for each in json.loads(capsys.readouterr().out) if each["device"] == device)
    assert row["state"] == "not built: the first command that uses it does that"
    assert not any(name.endswith(".so") for _, _, names in os.walk(tmp_path) for name in names)
