"""Options that several commands share: sizes, and those of MPA startup."""

import argparse

import pytest

from stagecoach.cli.main import build_parser, main
from stagecoach.cli.options import parse_size, startup_options
from stagecoach.host_driver import QP, StartupOptions

CLIENTS = {
    "rping": ["rping", "-c", "-a", "::1"],
    "perf": ["perf", "write"],
    "demo": ["demo"],
    "perftest": ["perftest", "ib_write_bw", "::1"],
    "nfs ls": ["nfs", "ls", "nfs+rdma://host/"],
    "nfs put": ["nfs", "put", "/", "nfs+rdma://host/"],
    **{f"nfs {name}": ["nfs", name, "nfs+rdma://host/"] for name in ("get", "stat", "rm")},
}
SERVERS = {
    "rping": ["rping", "-s"],
    "perf": ["perf", "write", "-s"],
    "perftest": ["perftest", "ib_write_bw"],
    "nfs": ["nfs", "serve", "/"],
}
SECONDS = {"demo": 60.0, "perftest": 120.0}
"""Of commands whose timeout is not 10 s."""


@pytest.mark.parametrize(
    ("text", "octets"),
    [("0", 0), ("1000", 1000), ("4MiB", 4 << 20), ("64 KiB", 64 << 10), ("1GiB", 1 << 30)],
)
def test_sizes(text, octets):
    assert parse_size(text) == octets


@pytest.mark.parametrize("text", ["", "-1", "4MB", "1.5MiB", "many"])
def test_other_sizes_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a size such as 4096 or 64KiB"):
        parse_size(text)


def parsed(arguments: list[str]) -> argparse.Namespace:
    return build_parser().parse_args(arguments)


@pytest.mark.parametrize("command", CLIENTS)
def test_every_command_that_connects_has_all_options(command):
    given = ["--no-crc", "--markers", "--revision", "1", "--timeout", "2.5"]
    assert startup_options(parsed([*CLIENTS[command], *given])) == StartupOptions(
        crc=False, markers=True, revision=1, timeout=2.5
    )
    assert startup_options(parsed([*CLIENTS[command], "--peer-to-peer"])).peer_to_peer
    told = startup_options(parsed(CLIENTS[command]))
    assert told == StartupOptions(timeout=SECONDS.get(command, 10.0))


@pytest.mark.parametrize("command", SERVERS)
def test_every_command_that_listens_has_all_options(command):
    given = ["--no-crc", "--markers", "--timeout", "7", "--revision", "1"]
    assert startup_options(parsed([*SERVERS[command], *given])) == StartupOptions(
        crc=False, markers=True, revision=1, timeout=7.0
    )
    assert startup_options(parsed([*SERVERS[command], "--peer-to-peer"])).peer_to_peer


BOTH_ENDS = [*CLIENTS.values(), *(SERVERS[name] for name in SERVERS if name != "perf")]
"""Commands that take the options; a perf server is told by its client."""


@pytest.mark.parametrize("words", BOTH_ENDS, ids=" ".join)
def test_revision_1_has_no_peer_to_peer_connections(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*words, "--revision", "1", "--peer-to-peer"])
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "--peer-to-peer with --revision 1; allowed: with revision 2" in err


@pytest.mark.parametrize("option", ["--no-crc", "--revision=1", "--peer-to-peer", "--markers"])
def test_a_perf_server_is_told_by_its_client(option, capsys):
    with pytest.raises(SystemExit):
        main(["perf", "write", "-s", option])
    assert "with -s; allowed: at the client" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("compiled_device")
@pytest.mark.parametrize("crc", [False, True])
def test_perf_connects_as_it_is_told(crc, tmp_path, monkeypatch):
    """Every connection of both ends, that of the notes too."""
    seen = []
    connect = QP.connect

    def record(qp, stream, **options):
        connect(qp, stream, **options)
        seen.append((options["crc"], options["markers_tx"], options["markers_rx"]))

    monkeypatch.setattr(QP, "connect", record)
    monkeypatch.chdir(tmp_path)
    told = ["--crc" if crc else "--no-crc", "--markers", "--revision", "1"]
    words = ["--sizes", "64", "--messages", "16", "--latency-messages", "2", "--qps", "2"]
    assert main(["perf", "write", *words, *told, "--plot", str(tmp_path / "plot")]) == 0
    assert seen == [(crc, True, True)] * 6
