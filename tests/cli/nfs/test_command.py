"""`stagecoach nfs` over TCP."""

import asyncio
import itertools
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from urllib.parse import quote

import pytest

from stagecoach.cli import main as cli
from stagecoach.ulp.nfs.client.connection import mounted
from stagecoach.ulp.nfs.client.url import NfsUrl
from stagecoach.ulp.nfs.server import data
from stagecoach.ulp.nfs.status import NfsError
from tests.cli.nfs.conftest import serving
from tests.ulp.nfs.tcp_server import WAYS, served, text_of
from tests.ulp.nfs.trees import facts_of, make_tree


@pytest.fixture
def there(tmp_path):
    directory = tmp_path / "there"
    make_tree(directory / "tree", [0, 10, 5000], seed=1)
    (directory / "name\x1b[31m\n").touch()
    with served(directory) as url:
        yield directory, lambda name="": text_of(url(name))


def run(*words) -> int:
    return cli.main(["nfs", *map(str, words)])


def test_ls(there, capsys):
    _, url = there
    assert run("ls", url()) == 0
    assert capsys.readouterr().out == "name\\x1b[31m\\n\ntree\n"
    assert run("ls", url("/tree/file-1-%C3%BC")) == 0
    assert capsys.readouterr().out == "file-1-ü\n"
    assert run("ls", "-l", url("/tree")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert re.fullmatch(r"-rw.{7} 1 +\d+ +\d+ +5000 2001-09-0\d .* file-2-ü", lines[-1])


def test_stat(there, capsys):
    directory, url = there
    assert run("stat", url("/tree")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "type  DIR" in lines[1]
    assert f"file id  {(directory / 'tree').stat().st_ino}" in "\n".join(lines)


def test_get_and_put(there, tmp_path, capsys):
    directory, url = there
    (tmp_path / "here").mkdir()
    assert run("get", "-r", url("/tree"), tmp_path / "here") == 0
    assert facts_of(tmp_path / "here" / "tree") == facts_of(directory / "tree")
    assert run("get", url("/tree/file-2-%C3%BC"), tmp_path / "here" / "other") == 0
    assert (tmp_path / "here" / "other").stat().st_size == 5000
    assert run("put", tmp_path / "here" / "other", url("/tree")) == 0
    assert run("put", tmp_path / "here" / "other", url("/new")) == 0
    assert run("put", "-r", tmp_path / "here" / "tree", url("/again")) == 0
    assert facts_of(directory / "again") == facts_of(tmp_path / "here" / "tree")
    for name in ("tree/other", "new"):
        assert (directory / name).read_bytes() == (tmp_path / "here" / "other").read_bytes()
    out, err = capsys.readouterr()
    assert out == ""
    # What was copied, and how fast.
    rate = r"\d+\.\d\d s, \d+\.\d\d MB/s"
    expected = [
        rf"get /export/tree: 5 files, 5,010 bytes in {rate}",
        rf"get /export/tree/file-2-ü: 1 file, 5,000 bytes in {rate}",
        *[rf"put other: 1 file, 5,000 bytes in {rate}"] * 2,
        rf"put tree: 5 files, 5,010 bytes in {rate}",
    ]
    for line, pattern in zip(err.splitlines(), expected, strict=True):
        assert re.fullmatch(pattern, line)


@pytest.mark.parametrize(("name", "octets"), [("file-0-ü", 0), ("file-2-ü", 5000)])
def test_get_to_standard_output(there, capsysbinary, name, octets):
    directory, url = there
    assert run("get", url(f"/tree/{quote(name)}"), "-") == 0
    out, err = capsysbinary.readouterr()
    assert out == (directory / "tree" / name).read_bytes() and len(out) == octets
    assert f": 1 file, {octets:,} bytes in ".encode() in err


def test_only_a_file_goes_to_standard_output(there, capsys):
    directory, url = there
    assert run("get", url("/tree"), "-") == cli.EXIT_FAILED
    text = "stagecoach nfs: /export/tree is a directory; allowed: a file\n"
    assert capsys.readouterr() == ("", text)
    (directory / "link").symlink_to("tree")
    assert run("get", url("/link"), "-") == cli.EXIT_FAILED
    assert capsys.readouterr().err == "stagecoach nfs: link is not a regular file\n"
    with pytest.raises(SystemExit) as ended:
        run("get", "-r", url("/tree"), "-")
    assert ended.value.code == cli.EXIT_BAD_INPUT
    assert "-r with -; allowed: one file" in capsys.readouterr().err


def test_a_file_may_have_the_name_of_standard_output(there, tmp_path, monkeypatch, capsys):
    directory, url = there
    monkeypatch.chdir(tmp_path)
    assert run("get", url("/tree/file-2-%C3%BC"), "./-") == 0
    assert (tmp_path / "-").read_bytes() == (directory / "tree" / "file-2-ü").read_bytes()
    assert capsys.readouterr().out == ""


def test_a_reader_that_ends_early_ends_the_copy(there):
    directory, url = there
    (directory / "long").write_bytes(bytes(8 << 20))
    words = ["nfs", "get", url("/long"), "-"]
    with subprocess.Popen(
        [sys.executable, "-m", "stagecoach.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert len(process.stdout.read(1000)) == 1000
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == cli.EXIT_FAILED


@pytest.fixture
def second_write(monkeypatch):
    """Is set when the server is at the second WRITE; it and those after it wait for the end."""
    came, going, numbers = threading.Event(), threading.Event(), itertools.count()
    write = data._write

    def gated(fd, arguments):
        if next(numbers):
            came.set()
            assert going.wait(120)
        write(fd, arguments)

    monkeypatch.setattr(data, "_write", gated)
    yield came
    going.set()


def test_an_interrupted_put_leaves_the_file_as_it_was(there, tmp_path, second_write):
    directory, url = there
    (directory / "name").write_bytes(b"as it was")
    (tmp_path / "name").write_bytes(os.urandom(3 << 20))
    names = set(os.listdir(directory))
    with subprocess.Popen(
        [sys.executable, "-m", "stagecoach.cli", "nfs", "put", str(tmp_path / "name"), url()],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert second_write.wait(60)
        (unfinished,) = set(os.listdir(directory)) - names
        assert re.fullmatch(r"\.name\.[0-9a-f]{8}\.part", unfinished)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == cli.EXIT_INTERRUPTED
    assert err == b"stagecoach nfs: interrupted\n"
    assert set(os.listdir(directory)) == names
    assert (directory / "name").read_bytes() == b"as it was"


def test_what_is_no_file_is_not_copied(there, tmp_path, capsys):
    directory, url = there
    for place in (directory / "tree", tmp_path):
        os.mkfifo(place / "fifo")
    text = "stagecoach nfs: fifo: no file, directory or link: skipped\n"
    assert run("get", url("/tree/fifo"), tmp_path / "new") == cli.EXIT_FAILED
    assert capsys.readouterr().err == text
    assert run("put", tmp_path / "fifo", url()) == cli.EXIT_FAILED
    assert capsys.readouterr().err == text
    # What is beside it is copied.
    assert run("get", "-r", url("/tree"), tmp_path / "new") == 0
    assert capsys.readouterr().err.startswith(text + "get /export/tree: 5 files, ")
    assert len(os.listdir(tmp_path / "new")) == len(os.listdir(directory / "tree")) - 1


def test_what_has_no_name(there, tmp_path, monkeypatch, capsys):
    directory, url = there
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").write_bytes(b"content")
    monkeypatch.chdir(tmp_path / "here")
    assert run("put", "-r", ".", url()) == 0
    assert (directory / "here" / "file").read_bytes() == b"content"
    (tmp_path / "root").mkdir()
    with served(tmp_path / "root", "/") as root:
        assert run("get", "-r", text_of(root())) == cli.EXIT_FAILED
        assert "allowed: a name that is not there" in capsys.readouterr().err
        assert run("get", "-r", text_of(root()), tmp_path / "new") == 0
    assert (tmp_path / "new").is_dir()


def test_rm(there, capsys):
    directory, url = there
    assert run("rm", "-r", url("/tree")) == 0
    assert os.listdir(directory) == ["name\x1b[31m\n"]
    assert run("rm", url("/name%1b[31m%0A")) == 0
    assert os.listdir(directory) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["ls", "/missing"], "nfs: missing: NFS3ERR_NOENT, no such file or directory"),
        (["get", "/tree"], "nfs: /export/tree is a directory; allowed"),
        (["rm", "/tree"], "nfs: tree: NFS3ERR_ISDIR"),
        (["stat", "/tree/file-0-%C3%BC/x"], "NFS3ERR_NOTDIR"),
    ],
)
def test_errors_have_one_line(there, capsys, words, text):
    _, url = there
    command, name = words
    assert run(command, url(name)) == cli.EXIT_FAILED
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("stagecoach nfs: ") and text in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["copy"],
        ["ls"],
        ["ls", "http://host/"],
        ["ls", "nfs+tcp://host:0x7/"],
        ["ls", "nfs+tcp://host/", "--profile", "rfc1"],
        ["ls", "nfs+tcp://host/", "--mount-port", "0"],
        ["put", "/missing/file", "nfs+tcp://host/"],
        ["serve", "/missing"],
        ["serve", "/", "--export", "relative"],
        ["serve", "/", "--export", "/a/.."],
        ["serve", "/", "--tcp-port", "65536"],
        ["serve", "/", "--no-tcp", "--no-rdma"],
    ],
)
def test_bad_input_has_one_line(capsys, words):
    with pytest.raises(SystemExit) as ended:
        run(*words)
    assert ended.value.code == cli.EXIT_BAD_INPUT
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "name"),
    [
        (["--anonuid", "7"], "anonuid"),
        (["--anongid", "7"], "anongid"),
        (["--all-squash"], "all-squash"),
    ],
)
def test_whom_callers_are_taken_for_is_roots_to_say(monkeypatch, capsys, option, name):
    """Without root there is nobody but the user who runs the server."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit) as ended:
        run("serve", "/", *option)
    assert ended.value.code == cli.EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"--{name} without root; allowed: if root" in error


@pytest.mark.parametrize("words", [["--anonuid", "4294967295"], ["--all-squash", "--root-squash"]])
def test_squash_options_that_do_not_fit(capsys, words):
    with pytest.raises(SystemExit) as ended:
        run("serve", "/", *words)
    assert ended.value.code == cli.EXIT_BAD_INPUT
    assert capsys.readouterr().err.count("\n") == 1


async def with_root(url, work, handle=None):
    """What `work` returns for the connection and the handle of the export, or another one."""
    async with mounted(NfsUrl.parse(url), WAYS) as files:
        return await work(files, handle or (await files.find(files.export)).handle)


def test_a_mount_survives_the_server(state, tmp_path):
    """SIGKILL, too: the client goes on with the handles that it has."""
    (tmp_path / "there" / "sub").mkdir(parents=True)
    (tmp_path / "there" / "sub" / "file").write_bytes(b"content")

    async def look_up(files, root):
        sub = (await files.nfs.lookup(root, b"sub")).object
        return (await files.nfs.lookup(sub, b"file")).object

    async def write(files, file):
        await files.nfs.write(file, 0, memoryview(b"CON"))
        return (await files.nfs.getattr(file)).size

    with serving(tmp_path / "there") as (_, url):
        handle = asyncio.run(with_root(url, look_up))
    assert stat.S_IMODE((state / "handle.key").stat().st_mode) == 0o600
    with serving(tmp_path / "there") as (_, url):
        assert asyncio.run(with_root(url, write, handle)) == 7
    assert (tmp_path / "there" / "sub" / "file").read_bytes() == b"CONtent"
    (state / "handle.key").unlink()
    with serving(tmp_path / "there") as (_, url):
        with pytest.raises(NfsError, match="NFS3ERR_STALE"):
            asyncio.run(with_root(url, write, handle))


def test_a_key_that_others_can_read_is_one_line(state, tmp_path, capsys):
    state.mkdir(parents=True)
    state.chmod(0o755)
    assert run("serve", tmp_path, "--no-rdma", "--tcp-port", "0") == cli.EXIT_FAILED
    err = capsys.readouterr().err
    assert err.splitlines()[-1] == (
        f"stagecoach nfs: {state} has mode 0755; allowed: a folder that its user alone may use"
    )


def test_a_key_that_cannot_be_kept_is_told_and_the_server_serves(state, tmp_path):
    (tmp_path / "state").touch()  # no folder
    with serving(tmp_path) as (process, _):
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert "warning: mounts of clients end with this server, because the key of file handles" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve(state, tmp_path, number):
    (tmp_path / "file").touch()
    with serving(tmp_path) as (process, url):
        assert NfsUrl.parse(url).path == os.fsencode(tmp_path)
        assert run("ls", url) == 0
        process.send_signal(number)
        assert process.wait(30) == (cli.EXIT_INTERRUPTED if number == signal.SIGINT else 0)
