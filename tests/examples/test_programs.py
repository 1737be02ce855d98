"""The five short programs do what their first lines say."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "programs"


def start(name: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAMS / name), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(name: str, *arguments: object) -> tuple[int, str, str]:
    with start(name, *arguments) as process:
        try:
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    return process.returncode, out, err


def port_of(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    return server.stdout.readline().rsplit(maxsplit=1)[-1]


def test_the_cache_has_what_was_put_until_it_is_dropped() -> None:
    with start("kv_cache.py", "serve") as server:
        try:
            address = f"127.0.0.1:{port_of(server)}"
            assert run("kv_cache.py", "put", address, "apple", "red") == (0, "", "")
            assert run("kv_cache.py", "get", address, "apple") == (0, "red\n", "")
            assert run("kv_cache.py", "drop", address, "apple") == (0, "", "")
            assert run("kv_cache.py", "get", address, "apple") == (0, "not there\n", "")
        finally:
            server.kill()


def test_no_measurement_of_sixteen_clients_is_lost() -> None:
    status, out, err = run("fan_in.py")
    assert (status, err) == (0, "")
    first, second = out.splitlines()
    assert first == "3040 from 16 clients"  # each sends 0 to 19
    assert int(second.split()[-2]) > 0


def test_each_client_of_the_loop_gets_its_answers() -> None:
    assert run("asyncio_server.py") == (0, "1 0\n2 1\n3 4\n", "")


def test_a_target_that_never_polls_learns_of_the_killed_peer() -> None:
    status, out, err = run("peer_killed.py")
    assert (status, err) == (0, "")
    assert "stopped: connection closed or lost" in out
    assert "state of the QP: ERR" in out


def test_the_copy_of_a_file_is_the_same(tmp_path: Path) -> None:
    source, folder = tmp_path / "data", tmp_path / "folder"
    folder.mkdir()
    source.write_bytes(bytes(range(251)) * 1000)
    with start("file_copy.py", "receive", folder) as receiver:
        try:
            status, _, err = run("file_copy.py", "send", source, f"127.0.0.1:{port_of(receiver)}")
            assert (status, err) == (0, "")
            assert receiver.wait(timeout=60) == 0
        finally:
            receiver.kill()
    assert (folder / "data").read_bytes() == source.read_bytes()


@pytest.mark.parametrize(
    ("name", "reason"), [("nothing", "No such file"), ("data", "Connection refused")]
)
def test_what_cannot_be_copied_is_one_line(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "data").write_bytes(b"x")
    status, out, err = run("file_copy.py", "send", tmp_path / name, "127.0.0.1:9")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert reason in err


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("kv_cache.py", ("get", "127.0.0.1:x", "apple")),
        ("asyncio_server.py", ("ask", "127.0.0.1", "1+1")),
        ("file_copy.py", ("send", "file", "127.0.0.1:65536")),
    ],
)
def test_an_address_that_is_none_is_named(name: str, arguments: tuple[str, ...]) -> None:
    status, out, err = run(name, *arguments)
    assert (status, out) == (2, "")
    assert "allowed: a host and a port, as 127.0.0.1:7700" in err
    assert "Traceback" not in err


def test_a_cache_that_is_not_there_is_one_line() -> None:
    status, out, err = run("kv_cache.py", "get", "127.0.0.1:9", "apple")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "Connection refused" in err
