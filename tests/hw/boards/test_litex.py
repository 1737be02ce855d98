"""What LiteX generates has the ports, the registers and the steps that we say it has."""

import importlib.metadata
import json
import re
import subprocess
import sys

import pytest

from stagecoach.hw import cache
from stagecoach.hw.boards.litex import dram, generate, mac
from stagecoach.hw.interface import litedram

CORES = pytest.mark.parametrize("core", [mac, dram])


@CORES
def test_ports(core):
    text = core.verilog()
    found = {
        name: (direction, int(high or 0) + 1)
        for direction, high, name in re.findall(
            r"^    (input|output|inout) +wire +(?:\[(\d+):0\])? *(\w+),?$", text, re.MULTILINE
        )
    }
    assert found == core.PORTS


@CORES
def test_one_module_with_a_name_of_ours(core):
    text = core.verilog()
    assert re.findall(r"^\s*module (\w+)", text, re.MULTILINE) == [core.MODULE]
    assert core.MODULE.startswith("stagecoach_")
    assert "$readmem" not in text  # it needs no other file


@CORES
def test_the_same_comes_every_time(core, monkeypatch, tmp_path):
    first = core.verilog()
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert core.verilog() == first
    # Then it is there.
    monkeypatch.setattr(generate, "_run", lambda *_: pytest.fail("was generated again"))
    assert core.verilog() == first


def test_registers_and_steps_of_the_memory_controller():
    found = json.loads(dram.description())
    registers = {
        name: litedram.Register(each["addr"], each["size"], each["type"] == "ro")
        for name, each in found["registers"].items()
    }
    assert registers == litedram.REGISTERS
    assert found["settings"] == litedram.SETTINGS
    assert found["geometry"] == litedram.GEOMETRY
    assert found["user_clock_hz"] == litedram.USER_CLOCK_HZ

    def bits(text: str) -> int:
        names = [name.removeprefix("DFII_CONTROL_") for name in text.split("|")]
        return sum(getattr(litedram, name.removeprefix("DFII_COMMAND_")) for name in names)

    steps = tuple(
        litedram.Step(
            name,
            address,
            bank,
            control=bits(what) if "CONTROL" in what else None,
            command=bits(what) if "COMMAND" in what else None,
            wait=wait,
        )
        for name, address, bank, what, wait in found["steps"]
    )
    assert steps == litedram.STEPS


def test_a_missing_package_is_told(monkeypatch):
    def version(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(
        generate.NotGenerated, match=r"litex is not installed; .*stagecoach\[boards"
    ):
        mac.verilog()


def test_a_generator_that_fails_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(generate.NotGenerated, match=r"mac_generator failed with status 1:\n"):
        generate.generated("stagecoach.hw.boards.litex.mac_generator", "x.v", "/no/such/folder/x")
    with pytest.raises(generate.NotGenerated, match="no generator 'stagecoach"):
        generate.generated("stagecoach.hw.none", "x.v", "x")


def test_nothing_of_litex_is_loaded_beside_amaranth():
    script = (
        "import sys; import stagecoach.hw.boards.ethernet; import stagecoach.hw.boards.litex.dram;"
        "print([name for name in ('migen', 'litex', 'liteeth', 'litedram') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stdout.strip() == "[]"
