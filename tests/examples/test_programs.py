"""The short programs do what their first lines say."""

import asyncio
import contextlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from types import ModuleType, SimpleNamespace

import pytest

from stagecoach import (
    ConnectionListener,
    Context,
    ResourceError,
    SimulatedDevice,
    StartupError,
    listen,
)

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "programs"

# Else standard error says that it is built.
pytestmark = pytest.mark.usefixtures("compiled_device")


def loaded(name: str) -> ModuleType:
    """A program as a module, another one at each call."""
    spec = importlib.util.spec_from_file_location(name, PROGRAMS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def devices() -> Iterator[tuple[Context, Context]]:
    with Context(SimulatedDevice()) as there, Context(SimulatedDevice()) as here:
        yield there, here


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


kv_cache = loaded("kv_cache")


class Cache:
    """A cache with one bucket, and its clients."""

    def __init__(self, there: Context, here: Context) -> None:
        self.server, self.here = kv_cache.Server(there, buckets=1), here

    def client(self, patience: float = 60.0):
        with ThreadPoolExecutor(1) as accepting:
            accepted = accepting.submit(self.server.accept_one)
            made = kv_cache.Client(self.here, "127.0.0.1", self.server.port, patience)
            accepted.result()
        return made

    def lock(self) -> int:
        return int.from_bytes(self.server.table.read(8), "little")


@pytest.fixture
def cache(devices: tuple[Context, Context]) -> Iterator[Cache]:
    there, here = devices
    made = Cache(there, here)
    yield made
    there.remove_event_handler(made.server.gone)
    here.reset()
    there.reset()


def test_the_fifth_key_of_a_bucket_drives_out_one(cache: Cache) -> None:
    client = cache.client()
    keys = [b"one", b"two", b"three", b"four", b"five"]
    for key in keys:
        client.put(key, b"value of " + key)
    values = [client.get(key) for key in keys]
    assert values[-1] == b"value of five"
    assert values.count(None) == 1
    assert [value for value in values if value] == [
        b"value of " + key for key, value in zip(keys, values, strict=True) if value
    ]


def test_clients_that_change_a_bucket_at_once_lose_nothing(cache: Cache) -> None:
    clients = {name: cache.client() for name in (b"ann", b"bob", b"cid")}
    wrong: list[object] = []

    def work(name: bytes) -> None:
        client = clients[name]
        for number in range(10):
            value = b"%s %d" % (name, number)
            client.put(name, value)
            client.put(b"all", value)
            if client.get(name) != value:
                wrong.append((name, number))

    with ThreadPoolExecutor(3) as working:
        list(working.map(work, clients))
    assert wrong == []
    assert cache.lock() == 0
    reader = clients[b"ann"]
    assert [reader.get(name) for name in clients] == [name + b" 9" for name in clients]
    assert reader.get(b"all") in [name + b" 9" for name in clients]


def test_a_lock_that_is_not_given_back_is_waited_for_as_long_as_allowed(cache: Cache) -> None:
    holder, other = cache.client(), cache.client(patience=0.2)
    holder.put(b"apple", b"red")
    assert holder._compare_and_swap(0, 0, holder.number)
    for change in (lambda: other.put(b"apple", b"green"), lambda: other.drop(b"apple")):
        with pytest.raises(kv_cache.CacheError, match=r"b'apple' is locked .* for 0\.2 s"):
            change()
    assert other.get(b"apple") == b"red"


def test_a_half_written_entry_is_read_again_for_as_long_as_allowed(cache: Cache) -> None:
    client = cache.client(patience=0.2)
    cache.server.table.write(b"half", offset=kv_cache.HEAD.size)
    with pytest.raises(kv_cache.CacheError, match=r"b'apple' is being written for 0\.2 s"):
        client.get(b"apple")


def test_the_lock_of_a_client_that_has_gone_is_broken(cache: Cache) -> None:
    holder, other = cache.client(), cache.client()
    assert holder._compare_and_swap(0, 0, holder.number)
    cache.server.table.write(b"half", offset=kv_cache.HEAD.size)
    holder.close()
    other.put(b"apple", b"green")
    assert other.get(b"apple") == b"green"


def test_what_is_not_there_is_dropped_without_a_loss(cache: Cache) -> None:
    client = cache.client()
    keys = [b"one", b"two", b"three", b"four"]
    for key in keys:
        client.put(key, key)
    client.drop(b"five")
    assert [client.get(key) for key in keys] == keys
    assert cache.lock() == 0


def test_a_server_of_sums_answers_clients_that_ask_it() -> None:
    with start("asyncio_server.py", "serve") as server:
        try:
            address = f"127.0.0.1:{port_of(server)}"
            assert run("asyncio_server.py", "ask", address, "2+3", "4*5") == (0, "5\n20\n", "")
            status, out, err = run("asyncio_server.py", "ask", address, "2^3", "7-9")
            assert (status, err) == (0, "")
            assert out == "error: a sum is two numbers with +, - or * between them\n-2\n"
            status, out, err = run("asyncio_server.py", "ask", address, "1+" + "1" * 63)
            assert (status, out, err.count("\n")) == (1, "", 1)
            assert "has 65 bytes; allowed: at most 64" in err
        finally:
            server.kill()


def test_a_sum_that_is_not_answered_is_waited_for_as_long_as_allowed(
    devices: tuple[Context, Context],
) -> None:
    there, here = devices
    program = loaded("asyncio_server")

    async def silent(listener: ConnectionListener) -> object:
        end = program.End(there)
        await program.accept_connection(await listener.accept(), end.qp)
        return end  # it stays open with the task

    async def talk() -> None:
        with listen(there) as listener:
            server = asyncio.create_task(silent(listener))
            with pytest.raises(TimeoutError, match=r"no answer to '1\+1' within 0\.2 s"):
                await program.ask(here, "127.0.0.1", listener.port, ["1+1"], 0.2)
            await server

    asyncio.run(talk())


def test_a_client_without_a_place_ends_no_other(
    devices: tuple[Context, Context], capsys: pytest.CaptureFixture[str]
) -> None:
    there, here = devices
    program = loaded("asyncio_server")
    end_of, refused = program.End, []

    def end(context: Context):
        if context is there and not refused:
            refused.append(context)
            raise ResourceError("no QP is left")
        return end_of(context)

    program.End = end  # type: ignore[attr-defined]

    async def talk() -> None:
        with listen(there) as listener:
            server = asyncio.create_task(program.serve(there, listener))
            with pytest.raises(StartupError):
                await program.ask(here, "127.0.0.1", listener.port, ["1+1"])
            assert await program.ask(here, "127.0.0.1", listener.port, ["1+1"]) == ["2"]
            server.cancel()
            await asyncio.gather(server, return_exceptions=True)

    asyncio.run(talk())
    assert capsys.readouterr().err == "no QP is left\n"


@pytest.mark.parametrize("octets", [b"not an MPA Request!!", b""], ids=["garbage", "nothing"])
def test_who_speaks_no_mpa_ends_no_server(
    devices: tuple[Context, Context], capsys: pytest.CaptureFixture[str], octets: bytes
) -> None:
    there, here = devices
    program = loaded("asyncio_server")

    async def talk() -> None:
        with listen(there) as listener:
            server = asyncio.create_task(program.serve(there, listener))
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(octets)
            writer.write_eof()
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
            writer.close()
            assert await program.ask(here, "127.0.0.1", listener.port, ["1+1"]) == ["2"]
            listener.close()
            await server

    asyncio.run(talk())
    assert capsys.readouterr().err.count("\n") == 1


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


def test_a_copy_with_another_sha_256_is_told_and_removed(
    tmp_path: Path, devices: tuple[Context, Context]
) -> None:
    there, here = devices
    receiver, sender = loaded("file_copy"), loaded("file_copy")
    ports: Queue[int] = Queue()

    def listen_and_tell(context: Context, port: int) -> ConnectionListener:
        made = listen(context, port=port)
        ports.put(made.port)
        return made

    class OfAnother:
        """The SHA-256 of another file."""

        update = staticmethod(lambda octets: None)
        digest = staticmethod(lambda: bytes(32))

    receiver.listen = listen_and_tell  # type: ignore[attr-defined]
    sender.hashlib = SimpleNamespace(sha256=OfAnother)  # type: ignore[attr-defined]
    source, folder = tmp_path / "data", tmp_path / "folder"
    folder.mkdir()
    source.write_bytes(b"x" * 1000)
    with ThreadPoolExecutor(1) as receiving:
        received = receiving.submit(receiver.receive, there, folder, 0)
        with pytest.raises(sender.CopyError, match="the copy is not the same"):
            sender.send(here, source, "127.0.0.1", ports.get(timeout=10))
        with pytest.raises(receiver.CopyError, match="the SHA-256 is another one"):
            received.result(timeout=60)
    assert list(folder.iterdir()) == []


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
