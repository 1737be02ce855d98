"""What is left at the server of a `put` over RDMA that ends early."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagecoach.cli import main as cli
from stagecoach.cli.nfs.command import EXIT_TERMINATED

COMMAND = [sys.executable, "-m", "stagecoach.cli", "nfs"]
SECONDS = 120

pytestmark = [pytest.mark.usefixtures("compiled_device"), pytest.mark.timeout(300)]


def heed_ctrl_c() -> None:
    """A shell's background jobs ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The folder of the server."""
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


@pytest.fixture
def server(there: Path, state: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A server over RDMA, and its URL."""
    options = ["--export", "/data", "--no-tcp", "--rdma-port", "0", "-a", "127.0.0.1"]
    with subprocess.Popen(
        [*COMMAND, "serve", str(there), *options, "--no-root-squash"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"nfs\+rdma://\S+", process.stdout.readline())
            assert found is not None
            yield process, found[0]
        finally:
            process.kill()


@pytest.fixture
def put(tmp_path: Path, there: Path, server) -> Iterator["subprocess.Popen[str]"]:
    """A `put` of which the server has begun to write the file."""
    (tmp_path / "name").write_bytes(os.urandom(6 << 20))
    with subprocess.Popen(
        [*COMMAND, "put", str(tmp_path / "name"), server[1]],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,
    ) as process:
        try:
            end = time.monotonic() + SECONDS
            while not any(path.stat().st_size for path in there.glob(".name.*.part")):
                assert time.monotonic() < end and process.poll() is None
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("number", "status", "word"),
    [
        (signal.SIGINT, cli.EXIT_INTERRUPTED, "interrupted"),
        (signal.SIGTERM, EXIT_TERMINATED, "terminated"),
    ],
)
def test_an_interrupted_put_leaves_nothing(put, there, number, status, word):
    """Though the server is reading buffers of WRITEs, on the connection that is still needed."""
    put.send_signal(number)
    _, err = put.communicate(timeout=SECONDS)
    assert (put.returncode, err) == (status, f"stagecoach nfs: {word}\n")
    assert os.listdir(there) == []


def test_what_stays_at_a_server_that_is_gone_is_named(put, server, there):
    server[0].kill()
    _, err = put.communicate(timeout=SECONDS)
    assert put.returncode == cli.EXIT_FAILED
    (name,) = os.listdir(there)
    first, *rest = err.splitlines()
    assert first == (
        f"stagecoach nfs: {name} may be left at the server, which did not say that it has "
        "removed it"
    )
    assert len(rest) == 1 and rest[0].startswith("stagecoach nfs: the connection is lost")
