"""Commands run with the project's Verilator, as `make example` runs make."""

import subprocess
import sys

import pytest

from stagecoach.sim.verilator import verilator_root

MODULE = [sys.executable, "-m", "stagecoach.sim.verilator"]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MODULE, *command], capture_output=True, text=True, check=False)


def test_a_command_finds_verilator_and_gives_its_status():
    found = run("sh", "-c", "command -v verilator").stdout
    assert found == f"{verilator_root() / 'bin' / 'verilator'}\n"
    assert run("sh", "-c", "exit 3").returncode == 3


@pytest.mark.parametrize(
    ("command", "message"), [([], "usage: "), (["no-such-command"], "No such file or directory")]
)
def test_what_cannot_be_run_is_one_line(command, message):
    done = run(*command)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
