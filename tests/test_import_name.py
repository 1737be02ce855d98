"""One import name: what programs use, and what stands beside them in their own folders."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import pytest

import stagecoach
from stagecoach import host_driver, nfs, pyverbs, rpc
from stagecoach.ulp.nfs import mount, status
from stagecoach.ulp.oncrpc import errors as rpc_errors
from stagecoach.ulp.rpcrdma import errors as rpcrdma_errors
from tools.check_wheel import COCOTB_TEST

ROOT = Path(__file__).parents[1]
PUBLIC = {"stagecoach": stagecoach, "stagecoach.nfs": nfs, "stagecoach.rpc": rpc}
PUBLIC |= {
    f"stagecoach.pyverbs.{found.name}": import_module(f"stagecoach.pyverbs.{found.name}")
    for found in iter_modules(pyverbs.__path__)
    if found.name[0] != "_"
}
PAGES = ["README.md", "docs", "examples"]
OURS = Path(stagecoach.__file__).parents[1]
ROOMS = tuple(sorted(path.name for path in (OURS / "stagecoach").iterdir() if path.is_symlink()))


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
    more |= {"CycleTime", "RnicNic", "SimulatedNic", "run_cocotb", "start_pair"}
    more |= {"BoardMemory", "NetworkSettings", "SerialNic"}
    assert set(stagecoach.__all__) == more | set(host_driver.__all__)
    assert len(stagecoach.__all__) == len(set(stagecoach.__all__))
    for name in host_driver.__all__:
        assert getattr(stagecoach, name) is getattr(host_driver, name)
    assert {getattr(stagecoach, name).__name__ for name in more} == more
    assert set(stagecoach.__all__) <= set(dir(stagecoach))


@pytest.mark.parametrize("module", [nfs, rpc], ids=["nfs", "rpc"])
def test_protocols_have_public_modules(module):
    assert sorted(module.__all__) == sorted(set(module.__all__))
    assert set(module.__all__) <= set(vars(module))
    for name in re.findall(r"`([A-Za-z]+)(?:\.\w+)?`", module.__doc__):
        assert name in module.__all__, name


def test_what_a_call_raises_is_public():
    for module, found in ((rpc, rpc_errors), (rpc, rpcrdma_errors), (nfs, mount), (nfs, status)):
        for name, each in vars(found).items():
            if isinstance(each, type) and issubclass(each, Exception) and name[0] != "_":
                if each.__module__ == found.__name__:
                    assert getattr(module, name) is each


def programs() -> dict[str, str]:
    """Python that users read: examples, and blocks of Python in pages."""
    files = [file for name in PAGES for file in [ROOT / name, *(ROOT / name).rglob("*")]]
    found = {}
    for file in files:
        where = str(file.relative_to(ROOT))
        if file.suffix == ".py":
            found[where] = file.read_text()
        elif file.suffix == ".md":
            blocks = re.findall(r"^```python\n(.*?)^```", file.read_text(), re.M | re.S)
            found |= {f"{where}, block {n}": text for n, text in enumerate(blocks, 1)}
    return found


def names_in(module: ModuleType) -> set[str]:
    """What programs may import from a module: all that modules of pyverbs define."""
    return set(getattr(module, "__all__", vars(module)))


@pytest.mark.parametrize("where", programs())
def test_users_import_public_modules_and_what_is_in_them(where):
    tree = compile(
        programs()[where], where, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                assert not alias.name.startswith("stagecoach.") or alias.name in PUBLIC, alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stagecoach"):
            assert node.module in PUBLIC, node.module
            for alias in node.names:
                public = f"{node.module}.{alias.name}" in PUBLIC
                assert public or alias.name in names_in(PUBLIC[node.module]), alias.name
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = PUBLIC.get(f"stagecoach.{node.value.id}")
            assert module is None or node.attr in names_in(module), node.attr


def test_readers_see_programs():
    assert {"README.md, block 1", "docs/nfs.md, block 1", "docs/rpcrdma.md, block 1"} <= set(
        programs()
    )


def test_names_without_their_package_are_left_out_and_say_what_is_missing(tmp_path):
    code = """
import sys
missing = ("amaranth", "cocotb", "numpy")
sys.modules.update(dict.fromkeys(missing))
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in missing else found(name)
import stagecoach
from stagecoach import *
assert "Rnic" not in globals() and "run_cocotb" not in globals()
assert set(stagecoach._NEEDS) & set(stagecoach.__all__) == set()
for name in stagecoach._NEEDS:
    try:
        getattr(stagecoach, name)
    except MissingExtra as error:
        print(name, error)
"""
    done = python(code, tmp_path)
    assert done.stderr == ""
    for name, line in zip(stagecoach._NEEDS, done.stdout.splitlines(), strict=True):
        wanted = rf"{name} \w+ is not installed; run: pip install 'stagecoach\[\w+\]'"
        assert re.fullmatch(wanted, line)


def test_the_version_is_that_of_the_package():
    assert stagecoach.__version__ == importlib.metadata.version("stagecoach")


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


MINE_ARE_IMPORTED = """
import rpc
import sim

assert (rpc.MINE, sim.MINE) == ("rpc", "sim")
"""


def test_a_cocotb_test_finds_the_folders_of_its_program(tmp_path):
    for name in ("sim/__init__.py", "rpc.py", "tests/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"MINE = {name.partition('/')[0].removesuffix('.py')!r}\n")
    (tmp_path / "tests" / "test_thing.py").write_text(COCOTB_TEST + MINE_ARE_IMPORTED)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_thing.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(OURS)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


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
import stagecoach.pyverbs.cmid
stagecoach.Context
found = {"amaranth", "cocotb", "numpy", "stagecoach.gateware"} & set(sys.modules)
assert not found, found
"""
    done = python(code, tmp_path)
    assert done.stderr == ""
