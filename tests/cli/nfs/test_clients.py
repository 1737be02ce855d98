"""The clients of a server: what `nfs serve -v` tells, and the table of `stagecoach top`."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from stagecoach.cli import main as cli
from stagecoach.cli.nfs.published import snapshot
from stagecoach.cli.top.nfs_clients import read_server, server_view
from stagecoach.cli.top.screen import screen
from stagecoach.host_driver.snapshots.folder import (
    FolderError,
    files,
    remove_dead,
    server_file_of,
    server_files,
)
from stagecoach.ulp.nfs.server.clients import Client, Clients
from tests.cli.nfs.conftest import serving

ROW = {
    "client": 1,
    "address": "192.0.2.7",
    "over": "rdma",
    "since": 100.0,
    "calls": 10,
    "octets_received": 1000,
    "octets_sent": 5000,
    "mounted": ["/data"],
}
SERVER = {"server": 7, "program": "stagecoach nfs", "open": True, "time": 110.0, "clients": [ROW]}


def run(*words) -> int:
    return cli.main(["nfs", *map(str, words)])


@pytest.fixture
def server(tmp_path, folder, state, monkeypatch):
    """A server as a process; its URL, and the folder in which it tells of its clients."""
    monkeypatch.setenv("STAGECOACH_TOP_INTERVAL", "0.05")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(bytes(5000))
    with serving("-v", tmp_path / "there", "--export", "/data") as (process, url):
        yield process, url, folder


def test_a_server_tells_of_its_clients(server, capsys):
    process, url, folder = server
    assert run("get", url + "/file", "-") == 0
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    lines = [line for line in err.splitlines() if "127.0.0.1" in line]
    assert lines[:2] == [
        "stagecoach nfs: client 1 (127.0.0.1, tcp) has connected",
        "stagecoach nfs: 127.0.0.1 has mounted /data",
    ]
    found = re.fullmatch(
        r"stagecoach nfs: client 1 \(127\.0\.0\.1, tcp\) has gone after \d+\.\d s: (\d+) calls of "
        r"([\d,]+) bytes, answered with ([\d,]+)",
        lines[2],
    )
    assert found is not None
    calls, received, sent = (int(each.replace(",", "")) for each in found.groups())
    assert calls >= 5 and received >= 40 * calls and sent > 5000
    assert list(server_files(folder)) == []  # it has ended


def test_top_shows_the_clients_of_a_server(server, monkeypatch, capsys):
    process, url, folder = server
    reader = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.nfs.test_clients", url], stdout=subprocess.PIPE
    )
    try:
        assert reader.stdout is not None and reader.stdout.readline() == b"mounted\n"
        end = time.monotonic() + 60
        monkeypatch.setenv("COLUMNS", "200")
        while True:
            assert time.monotonic() < end
            capsys.readouterr()
            assert cli.main(["top", "--once", "--json"]) == 0
            shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            if shown and shown[0]["clients"] and shown[0]["clients"][0]["calls"] > 3:
                break
            time.sleep(0.05)
        (row,) = shown[0]["clients"]
        assert (row["address"], row["over"], row["mounted"]) == ("127.0.0.1", "tcp", ["/data"])
        assert shown[0]["server"] == process.pid
        assert cli.main(["top", "--once"]) == 0
        out = capsys.readouterr().out
        assert f"NFS server {process.pid}: " in out
        assert re.search(r" 1 +127\.0\.0\.1 +tcp +\d+ +\d+ .* /data", out)
        process.kill()
        process.wait()
        assert cli.main(["top", "--once"]) == 0
        assert "NFS server" not in capsys.readouterr().out
        remove_dead(folder)
        assert list(server_files(folder)) == []
    finally:
        reader.kill()
        reader.communicate()


def test_rates_are_those_between_two_looks():
    later = {**ROW, "calls": 30, "octets_received": 3000, "octets_sent": 5000}
    new = {**ROW, "client": 2, "calls": 4}
    view = server_view(SERVER, {**SERVER, "time": 112.0, "clients": [later, new]})
    rates = {"calls": 10.0, "octets_received": 1000.0, "octets_sent": 0.0}
    assert view.rates[1] == rates
    assert view.rates[2]["calls"] == 2.0
    assert server_view(None, SERVER).rates[1]["calls"] == 0.0
    found = view.as_json()["clients"][0]
    assert found["calls_per_second"] == 10.0 and found["calls"] == 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": None}, "clients is None; allowed: a list"),
        ({"clients": [{**ROW, "calls": -1}]}, r"calls is -1; allowed: 0 to 2\^64 - 1"),
        ({"clients": [{**ROW, "calls": True}]}, "calls is True"),
        ({"clients": [{**ROW, "address": 3}]}, "address is 3; allowed: text"),
        ({"clients": [{**ROW, "since": float("nan")}]}, "since is nan"),
        ({"clients": [{**ROW, "mounted": [1]}]}, r"mounted is \[1\]; allowed: a list of texts"),
        ({"clients": [3]}, "client is 3; allowed: an object"),
        ({"time": "now"}, "time is 'now'; allowed: seconds since 1970"),
        ({"program": 1}, "program is 1; allowed: text"),
    ],
)
def test_no_field_is_believed(tmp_path, change, message):
    path = server_file_of(tmp_path, 1)
    path.write_text(json.dumps({**SERVER, **change}))
    with pytest.raises(FolderError, match=message):
        read_server(path)
    path.write_text(json.dumps(SERVER))
    assert read_server(path) == SERVER
    assert list(files(tmp_path)) == []  # it is that of no device


def test_text_of_clients_does_nothing_to_the_terminal(tmp_path):
    clients = Clients()
    clients.connected[1] = Client(1, "[bold]\x1b[2J", "tcp", 0.0, mounted=[b"/\xff[red]\x1b"])
    path = server_file_of(tmp_path, 1)
    path.write_text(json.dumps(snapshot(clients, True)))
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(screen([], servers=[server_view(None, read_server(path))]))
    shown = console.export_text()
    assert "\x1b" not in shown
    assert r"[bold]\x1b[2J" in shown and r"/\xff[red]\x1b" in shown
    console.print(screen([], servers=[server_view(None, {**SERVER, "clients": []})]))
    assert "no client is connected" in console.export_text()


def _stay(url: str) -> None:
    """A client that has mounted, calls now and then, and stays."""
    import asyncio

    from stagecoach.ulp.nfs.client.connection import mounted
    from stagecoach.ulp.nfs.client.url import NfsUrl
    from tests.ulp.nfs.tcp_server import WAYS

    async def stay():
        async with mounted(NfsUrl.parse(url), WAYS) as files:
            print("mounted", flush=True)
            while True:
                await files.find(files.export)
                await asyncio.sleep(0.1)

    asyncio.run(stay())


if __name__ == "__main__":
    _stay(sys.argv[1])
