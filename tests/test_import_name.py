"""One import name: what programs use, and what stands beside them in their own folders."""

import subprocess
import sys
from pathlib import Path

import pytest

import stagecoach
from stagecoach import host_driver

ROOMS = ("gateware", "host_driver", "hw", "sim")
OURS = Path(stagecoach.__file__).parents[1]


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program in a folder, which stands first in its path, as that of every program does."""
    (folder / "program.py").write_text(code)
    return subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env={"PYTHONPATH": str(OURS), "PATH": ""},
        capture_output=True,
        text=True,
    )


def test_the_public_names_are_those_of_the_driver_and_the_devices():
    more = {"CocotbDevice", "Rnic", "RnicConfig", "RnicPair", "SerialDevice", "SimulatedDevice"}
    more |= {"run_cocotb", "start_pair"}
    assert set(stagecoach.__all__) == more | set(host_driver.__all__)
    assert len(stagecoach.__all__) == len(set(stagecoach.__all__))
    for name in host_driver.__all__:
        assert getattr(stagecoach, name) is getattr(host_driver, name)
    assert {getattr(stagecoach, name).__name__ for name in more} == more
    assert set(stagecoach.__all__) <= set(dir(stagecoach))


def test_another_name_is_refused():
    with pytest.raises(AttributeError, match="module 'stagecoach' has no attribute 'Contxt'"):
        _ = stagecoach.Contxt


def test_folders_of_a_program_with_the_names_of_ours_change_nothing(tmp_path):
    for room in (*ROOMS, "bench"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text(f"MINE = {room!r}\n")
    code = f"""
import {", ".join((*ROOMS, "bench"))}
from stagecoach import Context, Rnic, SimulatedDevice, run_cocotb
assert [room.MINE for room in ({", ".join(ROOMS)})] == {list(ROOMS)}
assert Context.__module__.startswith("stagecoach."), Context
print("fine")
"""
    done = python(code, tmp_path)
    assert (done.stdout, done.stderr) == ("fine\n", "")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_not_imported_under_its_own_name(room):
    root = Path(stagecoach.__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", f"import {room}"], cwd=root, capture_output=True, text=True
    )
    assert done.stderr.endswith(f"ImportError: {room} is imported as stagecoach.{room}\n")


def test_verbs_import_neither_amaranth_nor_cocotb(tmp_path):
    code = """
import sys
import stagecoach
stagecoach.Context
found = {"amaranth", "cocotb", "stagecoach.gateware"} & set(sys.modules)
assert not found, found
"""
    done = python(code, tmp_path)
    assert done.stderr == ""
