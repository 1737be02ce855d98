"""A server as a process."""

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def serving(*words: object) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """`nfs serve` over TCP alone, at a free port of this machine, and the URL that it tells."""
    command = [sys.executable, "-m", "stagecoach.cli", "nfs", "serve", "--no-rdma"]
    command += ["--tcp-port", "0", "-a", "127.0.0.1", "--no-root-squash", *map(str, words)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore it, and so would the server.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"serving (nfs\+tcp://127\.0\.0\.1:\d+/.*) read-write\n", line)
            assert found is not None, line
            yield process, found[1]
        finally:
            process.kill()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user's key is."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "stagecoach" / "nfs"
