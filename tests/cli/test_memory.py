"""`stagecoach memory`: a client of `stagecoach memory-server`, both as processes."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from stagecoach.cli.main import main
from stagecoach.hw.interface.device_memory import MOST_MEMORY
from stagecoach.ulp.memory_server.client import Client
from stagecoach.ulp.memory_server.errors import MemoryServerError
from tests.cli.processes import Process, Processes

FAST = False  # runs whole devices

pytestmark = [pytest.mark.usefixtures("compiled_device"), pytest.mark.timeout(240)]

SERVER = "192.0.2.9"
OCTETS = 1 << 20
CONTENT = bytes(n * 7 % 251 for n in range(100_000))


def client_of(folder: Path) -> str:
    return f"sim://?wire=unix:{folder}/wire&ip=192.0.2.2/24&tcp=reference"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["list"], "invalid choice: 'list'"),
        (["put"], "the following arguments are required: HOST, FILE"),
        (["put", SERVER, "/nowhere"], "cannot read /nowhere: No such file or directory; allowed"),
        (["put", SERVER, "/"], "cannot read /: Is a directory; allowed: a regular file"),
        (["get", SERVER, "x", "--offset", "-1"], "invalid size '-1'"),
        (["get", SERVER, "x", "--offset", "x"], "invalid size 'x'"),
        (["get", SERVER, "x", "--size", "65GiB"], f"size is 65GiB; allowed: 0 to {MOST_MEMORY}"),
        (["bench", SERVER, "--size", "0"], "size is 0; allowed: 1 to 65536 bytes"),
        (["bench", SERVER, "--size", "65537"], "size is 65537; allowed: 1 to 65536 bytes"),
        (["bench", SERVER, "--messages", "0"], "messages is 0; allowed: 1 to 1048576"),
        (["bench", SERVER, "--latency-messages", "0"], "latency-messages is 0; allowed: 1 to 104"),
        (["bench", SERVER, "--offset", "4"], "offset is 4; allowed: a multiple of 8 (FetchAdd)"),
        (["bench", SERVER, "-p", "0"], "port is 0; allowed: 1 to 65535"),
    ],
)
def test_bad_options_are_one_line_and_status_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["memory", *arguments])
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.endswith("\n")
    assert message in err


def test_a_file_that_may_not_be_read_is_named(capsys, tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("stagecoach.cli.options.os.open", refuse)
    with pytest.raises(SystemExit):
        main(["memory", "put", SERVER, str(tmp_path)])
    assert "Permission denied; allowed: a regular file" in capsys.readouterr().err


@pytest.fixture
def serve(processes: Processes, tmp_path: Path) -> Callable[..., Process]:
    """Starts a server at `SERVER`, the only one in the wire."""

    def start(*options: str) -> Process:
        device = f"sim://?wire=unix-listen:{tmp_path}/wire&ip=192.0.2.1/24&tcp=reference"
        device += "&memory=1MiB"
        ip = ["--ip", f"{SERVER}/24"]
        started = processes.start("memory-server", "-v", "--device", device, *ip, *options)
        assert started.await_port("stdout", "listening at port") == 7176
        return started

    return start


@pytest.fixture
def server(serve: Callable[..., Process]) -> Process:
    return serve()


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a client with its device: what it prints, of an error the one line on stderr."""

    def memory(*arguments: str, status: int = 0) -> str:
        assert main(["memory", *arguments, "--device", client_of(tmp_path)]) == status
        out, err = capsys.readouterr()
        if not status:
            assert err == ""
            return out
        assert out == ""
        assert err.count("\n") == 1 and err.startswith("stagecoach memory: ")
        return err

    return memory


def test_a_file_is_put_and_comes_back(server, run, file, tmp_path):
    told = run("put", SERVER, str(file), "--offset", "4096")
    assert told.startswith("put 100000 bytes at offset 4096 in ") and told.endswith(" MB/s\n")
    back = tmp_path / "back"
    run("get", SERVER, str(back), "--offset", "4KiB", "--size", "100000")
    assert back.read_bytes() == CONTENT
    told = run("get", SERVER, str(back), "--offset", "1000KiB")
    assert told.startswith("got 24576 bytes at offset 1024000")
    assert back.read_bytes() == bytes(24576)
    server.process.send_signal(signal.SIGINT)
    status, _, err = server.end()
    assert status == 130
    assert err.count("192.0.2.2:") == 6 and "has connected" in err and "has gone" in err
    assert err.splitlines()[-1] == "stagecoach memory-server: interrupted"


def test_bench_shows_rates_cycles_and_latencies(server, run):
    few = ["--size", "1KiB", "--messages", "20", "--latency-messages", "3"]
    shown = json.loads(run("bench", SERVER, *few, "--json"))
    assert [each["operation"] for each in shown["throughput"]] == ["Write", "Read"]
    assert all(each["megabytes_per_second"] > 0 for each in shown["throughput"])
    assert [each["operation"] for each in shown["latency"]] == ["Write", "Read", "FetchAdd"]
    assert all(each["cycles"] > 0 and each["microseconds"] > 0 for each in shown["latency"])
    told = run("bench", SERVER, *few)
    assert "MB/s" in told and "bytes/cycle" in told and "Latency of 8 bytes" in told
    assert max(map(len, told.splitlines())) <= 80


def test_what_does_not_fit_is_one_line_and_changes_nothing(serve, run, file, tmp_path):
    serve("--size", "64KiB")
    told = run("put", SERVER, str(file), status=1)
    assert "put of 100000 bytes at offset 0; allowed: up to 65536, what is left there" in told
    told = run("put", SERVER, str(file), "--offset", "1MiB", status=1)
    assert "at offset 1048576; allowed: up to 0, what is left there of the server's 65536" in told
    told = run("get", SERVER, str(file), "--size", "65537", status=1)
    assert "get of 65537 bytes at offset 0; allowed: up to 65536" in told
    assert file.read_bytes() == CONTENT, "a file is replaced only by what there is"
    told = run("get", SERVER, str(tmp_path), status=1)
    assert f"{tmp_path}: Is a directory" in told
    assert "bench of 65536 bytes" in run("bench", SERVER, "--offset", "8", status=1)


def test_a_part_that_is_lost_on_the_way_leaves_the_file_as_it_was(
    server, run, file, tmp_path, monkeypatch
):
    def lost(_: Client, sink: BinaryIO, *__: int) -> None:
        sink.write(b"half")
        raise MemoryServerError("nothing from the server in 10 s")

    monkeypatch.setattr(Client, "get", lost)
    assert "nothing from the server" in run("get", SERVER, str(file), "--size", "8", status=1)
    assert file.read_bytes() == CONTENT
    # The socket of the wire is there, too, and is made anew after each peer.
    assert [each for each in tmp_path.iterdir() if each.is_file()] == [file]


def test_who_is_not_there_is_one_line(server, run, file):
    told = run("put", SERVER, str(file), "-p", "7", status=1)
    assert f"{SERVER}:7 refused the connection" in told


def test_what_is_no_memory_server_is_one_line(processes, run, file, tmp_path):
    device = f"sim://?wire=unix-listen:{tmp_path}/wire&ip={SERVER}/24&tcp=reference"
    other = processes.start("rping", "-s", "-d", "--device", device)
    port = other.await_port("stderr", "listening at port")
    told = run("put", SERVER, str(file), "-p", str(port), status=1)
    assert f"{SERVER}:{port} is no memory server: its private data are 0 bytes" in told
