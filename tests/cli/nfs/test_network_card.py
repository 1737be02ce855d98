"""NFS and `stagecoach top` with devices that have a network of their own."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagecoach.cli.main import main

COMMAND = [sys.executable, "-m", "stagecoach.cli"]
CONTENT = bytes(range(251)) * 1000
URL = "nfs+rdma://192.0.2.1/data"

pytestmark = [pytest.mark.usefixtures("compiled_device"), pytest.mark.timeout(300)]


@pytest.fixture
def served(tmp_path: Path, folder: Path, state: Path) -> Iterator[str]:
    """The device of clients of a server, which has `file` and publishes what it does."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(CONTENT)
    device = f"sim://?wire=unix-listen:{tmp_path}/wire&ip=192.0.2.1/24&tcp=reference&rto_min_ms=20"
    serve = ["nfs", "serve", str(tmp_path / "there"), "--export", "/data", "--no-tcp"]
    with subprocess.Popen(
        [*COMMAND, *serve, "--no-root-squash", "--device", device],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("serving nfs+rdma://")
            yield f"sim://?wire=unix:{tmp_path}/wire&ip=192.0.2.2/24&tcp=reference&rto_min_ms=20&loss=0.01"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def client(device: str, *words: object) -> int:
    return main(["nfs", *map(str, words), "--device", device])


def test_files_cross_a_wire_that_loses_frames_for_one_client_after_the_other(
    served, tmp_path, capsys
):
    assert client(served, "ls", URL) == 0
    assert capsys.readouterr().out == "file\n"
    assert client(served, "get", f"{URL}/file", tmp_path / "got") == 0
    assert (tmp_path / "got").read_bytes() == CONTENT
    assert client(served, "put", tmp_path / "got", f"{URL}/again") == 0
    assert (tmp_path / "there" / "again").read_bytes() == CONTENT


def test_top_shows_devices_and_what_their_networks_do(served, tmp_path, monkeypatch, capsys):
    get = [*COMMAND, "nfs", "get", f"{URL}/file", str(tmp_path / "got")]
    monkeypatch.setenv("STAGECOACH_TOP_INTERVAL", "0.05")
    assert main(["top", "--json", "--interval", "0.05", "--device", served, "--", *get]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {one["kind"] for one in shown} == {"simulated NIC"}
    assert shown[-1]["total"]["octets_received"] > len(CONTENT)
    networks = [one["network"] for one in shown if one["network"] is not None]
    assert networks and all("frames" not in each for each in networks)
    assert {each["address"] for each in networks} == {"192.0.2.2/24"}
    connections = [each for network in networks for each in network["connections"]]
    assert any(each["remote"] == "192.0.2.1:20049" and each["info"] for each in connections)
    # The server's device, in the folder that the environment names.
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["top", "--once"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"device \d+\.0 \(simulated NIC\): .* nfs serve ", out)
    assert re.search(r"192\.0\.2\.1/24: \d connections?, [\d,]+ segments sent, ", out)
