"""`stagecoach nfs` over TCP."""

import os
import re
import signal
import subprocess
import sys

import pytest

from stagecoach.cli import main as cli
from tests.ulp.nfs.tcp_server import served, text_of
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
    assert capsys.readouterr() == ("", "")


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
    assert capsys.readouterr().err == text
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
        (["ls", "/missing"], "NfsError: missing: NFS3ERR_NOENT, no such file or directory"),
        (["get", "/tree"], "IsADirectoryError: /export/tree is a directory; allowed"),
        (["rm", "/tree"], "NfsError: tree: NFS3ERR_ISDIR"),
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve(tmp_path, number):
    (tmp_path / "file").touch()
    words = [
        "serve",
        str(tmp_path),
        "--no-rdma",
        "--tcp-port",
        "0",
        "-a",
        "127.0.0.1",
        "--no-root-squash",
    ]
    command = [sys.executable, "-m", "stagecoach.cli", "nfs", *words]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore it, and so would the server.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            line = process.stdout.readline()
            found = re.fullmatch(r"serving (nfs\+tcp://127\.0\.0\.1:\d+)(/.*) read-write\n", line)
            assert found[2] == str(tmp_path)
            assert run("ls", found[1] + found[2]) == 0
        finally:
            process.send_signal(number)
        assert process.wait(30) == (cli.EXIT_INTERRUPTED if number == signal.SIGINT else 0)
