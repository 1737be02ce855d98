"""`stagecoach nfs` over RDMA: server and client in two processes, each with a compiled device."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from stagecoach.cli import main as cli
from tests.ulp.nfs.trees import facts_of, make_tree

PROFILES = ("rfc8166", "rfc5666")


@pytest.mark.parametrize("profile", PROFILES)
def test_put_list_get_and_remove(tmp_path, capfd, profile):
    make_tree(tmp_path / "tree", [0, 1, 5000, 70_001], seed=2)
    there = tmp_path / "there"
    there.mkdir()
    words = ["serve", str(there), "--export", "/data", "-a", "127.0.0.1", "--rdma-port", "0"]
    words += ["--no-tcp", "--profile", profile, "--no-root-squash"]
    command = [sys.executable, "-m", "stagecoach.cli", "nfs", *words]

    def run(*words) -> int:
        return cli.main(["nfs", *map(str, words), "--profile", profile])

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            found = re.fullmatch(r"serving (nfs\+rdma://127\.0\.0\.1:\d+/data) read-write\n", line)
            url = found[1]
            assert run("put", "-r", tmp_path / "tree", url) == 0
            assert facts_of(there / "tree") == facts_of(tmp_path / "tree")
            assert run("get", "-r", f"{url}/tree", tmp_path / "back") == 0
            assert facts_of(tmp_path / "back") == facts_of(tmp_path / "tree")
            capfd.readouterr()
            assert run("ls", url) == 0
            assert capfd.readouterr().out == "tree\n"
            assert run("rm", "-r", f"{url}/tree") == 0
            assert list(there.iterdir()) == []
            assert run("ls", f"{url}/tree") == cli.EXIT_FAILED
            assert "NFS3ERR_NOENT" in capfd.readouterr().err
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert run("ls", url) == cli.EXIT_FAILED
    assert capfd.readouterr().err.count("\n") == 1


def test_sigterm_ends_the_server_while_a_client_takes_nothing(tmp_path):
    """The client is stopped in the middle of its READs: the server's device cannot send."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(bytes(16 << 20))
    words = ["serve", str(tmp_path / "there"), "--export", "/data", "-a", "127.0.0.1"]
    words += ["--rdma-port", "0", "--no-tcp", "--no-root-squash"]
    command = [sys.executable, "-m", "stagecoach.cli", "nfs"]
    with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True) as server:
        client = None
        try:
            url = server.stdout.readline().split()[1]
            get = [*command, "get", f"{url}/file", str(tmp_path / "copy")]
            client = subprocess.Popen(get, stderr=subprocess.DEVNULL)
            deadline = time.monotonic() + 120
            while not any(name.endswith(".part") for name in os.listdir(tmp_path)):
                assert client.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(0.5)
            client.send_signal(signal.SIGSTOP)
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
        finally:
            server.kill()
            if client is not None:
                client.kill()
                client.wait()
