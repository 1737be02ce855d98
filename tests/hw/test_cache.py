"""What is built is kept by content: once, whole, up to a size, in a folder that can be named."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stagecoach.hw import cache, rtlil
from stagecoach.hw.cached_verilog import cached_verilog
from stagecoach.hw.files import locked
from stagecoach.sim import build
from stagecoach.sim.verilator import BuildError, require
from tests.support.cache_entries import HOUR, keep, keys

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("STAGECOACH_CACHE", str(folder))
    monkeypatch.delenv("STAGECOACH_CACHE_MIB", raising=False)
    return folder


def test_an_entry_is_made_once(root):
    made = []

    def make(folder):
        assert list(folder.iterdir()) == []
        made.append(folder)
        (folder / "it").write_text("whole")

    for _ in range(2):
        assert cache.kept("device", "a", "it", make) == root / "device" / "a" / "it"
    assert made == [root / "device" / "a"]


def test_what_was_interrupted_is_made_anew(root):
    def fail(folder):
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.kept("device", "a", "it", fail)
    assert keep("device", "a").exists()
    assert not (root / "device" / "a" / "half").exists()


PROCESS = """
import pathlib, time
from stagecoach.hw import cache

waiting = pathlib.Path("waiting")

def make(folder):
    print("makes it", flush=True)
    while not waiting.exists():
        time.sleep(0.01)
    (folder / "it").touch()

print("asks", flush=True)
print(cache.kept("device", "a", "it", make, waiting.touch).exists())
"""


def test_of_two_processes_one_makes_it_and_the_other_says_that_it_waits(tmp_path):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = sorted(process.communicate(timeout=60)[0] for process in processes)
    assert said == ["asks\nTrue\n", "asks\nmakes it\nTrue\n"]


def test_nobody_is_told_of_a_wait_for_what_is_there(root):
    path = keep("device", "a")
    held = threading.Event()

    def hold():
        with locked(path.parent):
            held.set()
            time.sleep(0.2)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    assert cache.kept("device", "a", "it", pytest.fail, pytest.fail) == path
    holder.join()


def test_nobody_waits_for_the_limit_of_another(root, monkeypatch):
    begun, end = threading.Event(), threading.Event()

    def trim(*arguments: object) -> None:
        begun.set()
        assert end.wait(20)

    monkeypatch.setattr(cache, "_trim", trim)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(keep, "device", "a")
        assert begun.wait(20)
        pool.submit(keep, "device", "a").result(timeout=10)
        assert not first.done()
        end.set()
        first.result(timeout=10)


def told_while_another_makes_it(ask, begun, waiting):
    """What `ask(progress)` is told while another thread does `ask(None)`."""
    steps = []

    def progress(step):
        steps.append(step)
        waiting.set()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(ask, None)
        assert begun.wait(60)
        assert ask(progress) == other.result()
    return steps


def test_who_waits_for_verilog_or_a_device_is_told(monkeypatch):
    begun, waiting = threading.Event(), threading.Event()

    def component():
        begun.set()
        assert waiting.wait(60)
        return "module"

    monkeypatch.setattr(rtlil, "export", lambda made, top: made)
    monkeypatch.setattr(rtlil, "to_verilog", str)
    waited = ["wait for another process or thread that builds the same"]

    def verilog(progress):
        return cached_verilog("key", component, "top", progress)

    assert told_while_another_makes_it(verilog, begun, waiting) == waited

    def make(folder, parts, *_):
        (folder / parts.output).write_text(component())

    monkeypatch.setattr(build, "_build", make)
    begun.clear()
    waiting.clear()

    def device(progress):
        return build.compile_parts("module", build.RNIC_PARTS, [], progress=progress)

    assert told_while_another_makes_it(device, begun, waiting) == waited


def test_what_was_not_used_for_the_longest_time_goes_first(monkeypatch):
    for age in (5, 3, 4, 2):
        keep("cocotb" if age % 2 else "device", f"used_{age}", 1 << 20, age)
    assert keys() == ["used_5", "used_4", "used_3", "used_2"]
    keep("device", "used_4")  # a use, nothing is made
    os.utime(cache.root() / "device" / "used_4", (time.time() - 1.5 * HOUR,) * 2)
    monkeypatch.setenv("STAGECOACH_CACHE_MIB", "3")
    keep("device", "new", 1 << 20)
    assert keys() == ["used_2", "used_4", "new"]
    assert not list(cache.root().rglob("used_5*")), "its lock file goes away, too"


def test_what_may_be_in_use_stays_above_the_limit(monkeypatch):
    keep("device", "recent", 1 << 20, 0.9)
    keep("device", "held", 1 << 20, 3)
    keep("device", "older", 1 << 20, 2)
    monkeypatch.setenv("STAGECOACH_CACHE_MIB", "0")
    with locked(cache.root() / "device" / "held"):
        keep("device", "new")
    assert keys() == ["held", "recent", "new"]


def test_results_elsewhere_are_kept_to_the_same_limit(tmp_path, monkeypatch):
    monkeypatch.setenv("STAGECOACH_CACHE_MIB", "2")
    results = tmp_path / "results"
    for age in (3, 0, 2, 5):
        folder = results / f"used_{age}"
        folder.mkdir(parents=True)
        (folder / "it").write_bytes(bytes(1 << 20))
        os.utime(folder, (time.time() - age * HOUR,) * 2)
    (results / "report.json").touch()
    cache.trim_results(results)
    assert sorted(each.name for each in results.iterdir() if each.suffix != ".lock") == [
        "report.json",
        "used_0",
        "used_2",
    ]
    assert cache.entries() == []


def test_a_use_is_the_last_one(root):
    keep("device", "a", age_hours=5)
    cache.kept("device", "a", "it", lambda folder: None)
    assert cache.entries()[0].used > time.time() - 60


def test_what_is_half_removed_is_removed(root):
    keep("device", "a")
    (root / "device" / "b.7.removed").mkdir()
    keep("device", "c")
    assert sorted(keys()) == ["a", "c"]


@pytest.mark.parametrize("text", ["many", "-1", "1.5"])
def test_a_limit_that_is_no_number_is_named(text, monkeypatch):
    monkeypatch.setenv("STAGECOACH_CACHE_MIB", text)
    with pytest.raises(
        cache.CacheError, match=f"STAGECOACH_CACHE_MIB is '{text}'; allowed: a whole"
    ):
        keep("device", "a")
    assert cache.entries() == []


def test_the_default_is_the_folder_of_the_user(monkeypatch, tmp_path):
    monkeypatch.delenv("STAGECOACH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert cache.root() == tmp_path / "home" / "stagecoach"
    assert cache.limit() == 4 << 30


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("STAGECOACH_CACHE", str(file / "cache"))
    with pytest.raises(cache.CacheError) as caught:
        keep("device", "a")
    assert str(caught.value) == (
        f"the cache {file}/cache cannot be written: Not a directory; "
        "name another folder in STAGECOACH_CACHE"
    )
    assert cache.entries() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_is_in_a_cache_that_cannot_be_written_is_used(root):
    path = keep("device", "a")
    (root / "device").chmod(0o555)
    (root / "device" / "a.lock").chmod(0o444)
    assert cache.kept("device", "a", "it", pytest.fail) == path
    with pytest.raises(cache.CacheError, match="Permission denied"):
        keep("device", "b")


def test_what_is_in_a_cache_without_locks_is_used(root):
    path = keep("device", "a")
    (root / "device" / "a.lock").unlink()
    (root / "device" / "a.lock").mkdir()  # no lock can be made, whoever asks
    assert cache.kept("device", "a", "it", pytest.fail) == path


def fails(command, **environment):
    """The one line of a command that fails with status 1."""
    ran = subprocess.run(
        [sys.executable, "-m", "stagecoach.cli", command],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    (line,) = ran.stderr.splitlines()
    return line


def test_a_command_tells_in_one_line_that_the_cache_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    line = fails("info", STAGECOACH_CACHE=str(tmp_path / "file"))
    assert line.startswith(f"stagecoach info: the cache {tmp_path}/file cannot be written")


def test_a_command_tells_in_one_line_that_the_compiler_is_missing(tmp_path, root):
    (tmp_path / "perl").symlink_to(sys.executable)
    line = fails("info", PATH=str(tmp_path))
    assert line.startswith("stagecoach info: the C++ compiler 'g++' is not installed")
    assert not root.exists(), "nothing was exported before"


def test_missing_programs_are_named_with_what_brings_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        BuildError, match=r"^make and perl are not installed \(Debian: apt install make perl\)$"
    ):
        require("make", "perl")
    (tmp_path / "make").symlink_to(sys.executable)
    require("make")
