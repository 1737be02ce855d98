"""`stagecoach ip`: networks that programs publish, and ping."""

import copy
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stagecoach.cli.ip import command
from stagecoach.cli.main import main
from stagecoach.host_driver.snapshots.file import read_snapshot
from stagecoach.host_driver.snapshots.folder import FolderError
from stagecoach.host_driver.snapshots.network import network_snapshot
from stagecoach.sim.network.nic import SimulatedNic
from tests.cli.conftest import Work

pytestmark = [pytest.mark.usefixtures("compiled_device"), pytest.mark.timeout(240)]


@pytest.fixture
def published(publishing: Callable[[Work], Path]) -> Iterator[dict[str, Any]]:
    """The snapshot of a card with an established connection."""
    streams = []

    def connect(nic: SimulatedNic, peer: SimulatedNic) -> None:
        with peer.listen("", 9) as listener:
            streams.append(nic.connect("192.0.2.2", 9, 10))
            streams.append(listener.accept(10))
        streams[0].sendall(bytes(5000), 10)
        streams[1].receive_exactly(5000, 10)

    yield read_snapshot(publishing(connect))
    streams.clear()  # they were open until now


def test_a_connection_is_shown_as_ss_does(published, capsys):
    assert main(["ip"]) == 0
    out = capsys.readouterr().out
    assert "address 192.0.2.1/24 mac 02:00:c0:00:02:01 mtu 1500 gateway 192.0.2.2" in out
    assert "tcp reference" in out
    assert "neighbour 192.0.2.2 02:00:c0:00:02:02 reachable" in out
    assert "ESTABLISHED 192.0.2.1:" in out and "192.0.2.2:9" in out
    for part in ("rtt:0.", "rto:200", "mss:1460", "cwnd:", "bytes_sent:5000", "retrans:0"):
        assert part in out


@pytest.mark.parametrize(
    "carrier", ["lost: unix:/w: the peer closed the stream", "down: no peer yet"]
)
def test_a_wire_without_a_peer_is_shown(published, folder, capsys, carrier):
    assert published["network"]["carrier"] == "up"
    (path,) = folder.glob("*.json")
    path.write_text(
        json.dumps(published | {"network": published["network"] | {"carrier": carrier}})
    )
    assert main(["ip"]) == 0
    assert f"  carrier {carrier}\n" in capsys.readouterr().out


def test_it_is_shown_as_json(published, capsys):
    assert main(["ip", "--json"]) == 0
    (network,) = json.loads(capsys.readouterr().out)
    assert network["address"] == "192.0.2.1/24"
    (connection,) = network["connections"]
    assert connection["info"]["octets_sent"] == 5000
    assert connection["info"]["segments_sent"] >= 4


def test_a_network_that_has_ended_is_not_shown(published, folder, capsys):
    text = json.dumps(published | {"open": False})
    (path,) = folder.glob("*.json")
    path.write_text(text)
    assert main(["ip"]) == 0
    assert "no program with a network was found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("mtu",), "wide", "network.mtu is 'wide'"),
        (("address",), 7, "network.address is 7"),
        (("neighbours",), {}, "network.neighbours is {}"),
        (("neighbours", 0, "age_us"), -1, "network.neighbours.age_us is -1"),
        (("connections", 0), None, "network.connections. is None"),
        (("connections", 0, "qp"), "x", "network.connections.qp is 'x'"),
        (("connections", 0, "info", "rto_us"), None, "network.connections.info.rto_us is None"),
        (("connections", 0, "info"), [], "network.connections.info. is []"),
    ],
)
def test_what_is_no_network_is_not_believed(published, folder, place, value, message, capsys):
    changed = copy.deepcopy(published)
    at: Any = changed["network"]
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    (path,) = folder.glob("*.json")
    path.write_text(json.dumps(changed))
    with pytest.raises(FolderError) as raised:
        read_snapshot(path)
    assert message in str(raised.value)
    assert main(["ip"]) == 0
    assert message in capsys.readouterr().err


def test_a_device_without_a_network_publishes_none():
    assert network_snapshot(object()) is None  # type: ignore[arg-type]


def test_ping_of_two_processes(tmp_path, capsys):
    wire = tmp_path / "wire"
    command = [sys.executable, "-m", "stagecoach.cli", "ip", "ping", "192.0.2.1"]
    options = [
        "-c",
        "2",
        "-W",
        "20",
        "--device",
        f"sim://?wire=unix:{wire}&ip=192.0.2.2/24&tcp=reference",
    ]
    with SimulatedNic(f"sim://?wire=unix-listen:{wire}&ip=192.0.2.1/24&tcp=reference"):
        done = subprocess.run(
            [*command, *options],
            capture_output=True,
            text=True,
            timeout=100,
        )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].startswith("56 bytes from 192.0.2.1: seq=1 time=")
    assert lines[2] == "2 sent, 2 received, 0 % lost"


def test_ping_of_nobody_says_so(tmp_path, capsys):
    device = f"sim://?wire=pair:{tmp_path.name}&ip=192.0.2.2/24&tcp=reference"
    assert main(["ip", "ping", "192.0.2.9", "-c", "2", "--device", device]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    text = "192.0.2.9 does not answer ARP requests (carrier down: no peer yet)"
    assert err == f"stagecoach ip: {text}\n"


def test_a_neighbour_that_goes_during_ping_is_told_with_each_echo(tmp_path, capsys, monkeypatch):
    other = SimulatedNic(f"sim://?wire=pair:{tmp_path.name}&ip=192.0.2.1/24&tcp=reference")

    def leave(seconds: float) -> None:
        other.close()

    device = f"sim://?wire=pair:{tmp_path.name}&ip=192.0.2.2/24&tcp=reference"
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=time.monotonic, sleep=leave))
    assert main(["ip", "ping", "192.0.2.1", "-c", "2", "-W", "2", "--device", device]) == 0
    lines = capsys.readouterr().out.splitlines()
    lost = f"(carrier lost: pair:{tmp_path.name}: the peer closed the stream)"
    assert lines[1] == f"seq=1 192.0.2.1 sent no reply in 2 s {lost}"
    assert lines[2] == "2 sent, 1 received, 50 % lost"


def test_a_capture_that_gets_full_is_told_after_the_summary(tmp_path, capsys):
    wire = f"pair:{tmp_path.name}"
    device = f"sim://?wire={wire}&ip=192.0.2.2/24&tcp=reference&pcap=/dev/full"
    with SimulatedNic(f"sim://?wire={wire}&ip=192.0.2.1/24&tcp=reference"):
        assert main(["ip", "ping", "192.0.2.1", "-c", "1", "-W", "20", "--device", device]) == 1
    out, err = capsys.readouterr()
    assert "1 sent, 1 received, 0 % lost" in out
    assert err == "stagecoach ip: pcap=/dev/full: No space left on device\n"


def test_a_ping_that_is_longer_than_the_mtu_is_one_line(tmp_path, capsys):
    device = f"sim://?wire=pair:{tmp_path.name}&ip=192.0.2.2/24&tcp=reference&mtu=600"
    assert main(["ip", "ping", "192.0.2.9", "-s", "573", "--device", device]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "stagecoach ip: ping of 573 bytes; allowed: 0 to 572, as the MTU is 600\n",
    )


def test_an_interrupt_ends_ping_with_what_was_counted(tmp_path, capsys, monkeypatch):
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    device = f"sim://?wire=pair:{tmp_path.name}&ip=192.0.2.2/24&tcp=reference"
    with SimulatedNic(f"sim://?wire=pair:{tmp_path.name}&ip=192.0.2.1/24&tcp=reference"):
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=interrupt)
        monkeypatch.setattr(command, "time", clock)
        assert main(["ip", "ping", "192.0.2.1", "-c", "9", "-W", "20", "--device", device]) == 130
    out, err = capsys.readouterr()
    assert "1 sent, 1 received, 0 % lost" in out.splitlines()[1]
    assert err == "stagecoach ip: interrupted\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["192.0.2.1", "--device", "simulation"], "simulation has no network of its own; allowed"),
        (["192.0.2.1", "-c", "0"], "count is 0; allowed: 1 to 1000000"),
        (["192.0.2.1", "-W", "0"], "time is 0; allowed: above 0 to 86400 s"),
        (["192.0.2.1", "-s", "70000"], "size is 70000; allowed: 0 to 65507"),
    ],
)
def test_a_wrong_ping_is_one_line(capsys, arguments, message):
    with pytest.raises(SystemExit) as raised:
        main(["ip", "ping", *arguments])
    assert raised.value.code == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and message in told
