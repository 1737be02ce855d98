"""Commands run with the project's Verilator, as `make example` runs make."""

import os
import shutil
import subprocess
import sys

import pytest

from stagecoach.sim.verilator import verilator_root

MODULE = [sys.executable, "-m", "stagecoach.sim.verilator"]


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(
        [*MODULE, *command], env=environment, capture_output=True, text=True, check=False
    )


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


def test_a_space_in_the_path_of_verilator_is_told_in_one_line(tmp_path):
    package = tmp_path / "with space" / "verilator"
    package.mkdir(parents=True)
    shutil.copy(verilator_root() / "__init__.py", package)
    path = os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")])
    done = run("true", PYTHONPATH=path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        f"Verilator does not run from a path with a space, and is in '{package}'"
    )
