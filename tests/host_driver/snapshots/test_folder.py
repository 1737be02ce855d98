"""What `stagecoach top` makes of folders that others can write to, and of what stands there."""

import io
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from stagecoach.cli.main import main
from stagecoach.cli.top.rates import view
from stagecoach.cli.top.screen import screen
from stagecoach.host_driver import Context
from tests.cli.test_top import CountingDevice, snapshot_of

ROOT = Path(__file__).parents[3]
VARIABLE = "STAGECOACH_TOP"


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """One that others can write to."""
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv(VARIABLE, str(folder))
    monkeypatch.setenv("STAGECOACH_TOP_INTERVAL", "3600")
    return folder


@pytest.fixture
def runtime(monkeypatch, tmp_path):
    """The place of the private folder; nothing is named by the environment."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "stagecoach-top"


def shown(view_of_device) -> str:
    console = Console(width=100, file=io.StringIO())
    console.print(screen([view_of_device]))
    return console.file.getvalue()


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def look_once(*options: str) -> int:
    return main(["top", "--once", *options])


@pytest.mark.parametrize("text", ["[/x]", "[bold]", "[/]", "\\[/x]", "[link=http://a]"])
def test_what_looks_like_markup_is_shown_as_it_is(text):
    about = {"program": f"run {text}", "device": text, "kind": text}
    output = shown(view(snapshot_of(1.0, 0, 0), snapshot_of(2.0, 1, 1, **about)))
    assert f"device {text} ({text}): run {text}" in output


def test_a_program_cannot_speak_to_the_terminal():
    about = {"program": "run \x1b]0;title\x07\x1b[2J\r\x9b"}
    output = shown(view(snapshot_of(1.0, 0, 0), snapshot_of(2.0, 1, 1, **about)))
    assert "run \\x1b]0;title\\x07\\x1b[2J\\r\\x9b" in output
    assert output.replace("\n", "").isprintable()


def test_a_program_whose_arguments_look_like_markup_is_shown(capfd):
    program = ROOT / "tests" / "cli" / "test_top.py"
    code = f"import sys; sys.argv[0] = {str(program)!r}\n" + (
        "from stagecoach.host_driver import Context\n"
        "from tests.cli.test_top import CountingDevice\n"
        "with Context(CountingDevice()): pass\n"
    )
    assert main(["top", "--once", "--", sys.executable, "-c", code, "[/x]", "[red]"]) == 0
    out, err = capfd.readouterr()
    assert "test_top.py [/x] [red]" in out and "Traceback" not in err


def test_files_are_for_their_owner_alone(folder):
    umask = os.umask(0)
    try:
        with Context(CountingDevice()):
            (path,) = files_of(folder)
            assert stat.filemode(path.lstat().st_mode) == "-rw-------"
    finally:
        os.umask(umask)
    assert stat.filemode(path.lstat().st_mode) == "-rw-------"


def test_no_link_is_followed_where_a_file_is_written(folder, tmp_path):
    """At any name that a device may have in this process, finished or not."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for number in range(2000):
        for suffix in (".json", ".unfinished"):
            (folder / f"{os.getpid()}-{number}{suffix}").symlink_to(victim)
    links = set(files_of(folder))
    with Context(CountingDevice()):
        pass
    assert victim.read_text() == "precious"
    (path,) = (each for each in links if not each.is_symlink())
    assert not json.loads(path.read_text())["open"]
    assert set(files_of(folder)) == links  # and nothing is left over


def test_a_folder_that_takes_no_file_does_not_keep_a_program_from_its_device(folder, caplog):
    for number in range(2000):
        (folder / f"{os.getpid()}-{number}.json").mkdir()
    before = files_of(folder)
    with Context(CountingDevice()) as context:
        assert context.fpdus_sent == 0
    assert "stagecoach top does not see this device: cannot write" in caplog.text
    assert files_of(folder) == before


def until(condition) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_file_that_cannot_be_written_once_is_written_later(folder, monkeypatch, caplog):
    monkeypatch.setenv("STAGECOACH_TOP_INTERVAL", "0.05")
    told = "stagecoach top does not see what this device does: cannot write"
    with Context(CountingDevice()) as context:
        (path,) = files_of(folder)
        for times in (1, 2):
            path.unlink()
            path.mkdir()
            until(lambda times=times: caplog.text.count(told) == times)
            time.sleep(0.2)
            assert caplog.text.count(told) == times, "once, not at every look"
            path.rmdir()
            until(path.is_file)
            assert json.loads(path.read_text())["open"]
        assert context.fpdus_sent == 0
    assert not json.loads(path.read_text())["open"]


def test_nothing_is_told_of_a_folder_that_is_gone(folder, monkeypatch, caplog):
    monkeypatch.setenv("STAGECOACH_TOP_INTERVAL", "0.05")
    with Context(CountingDevice()):
        (path,) = files_of(folder)
        path.unlink()
        folder.rmdir()
        time.sleep(0.2)
    assert not caplog.records


@pytest.mark.parametrize("seconds", ["abc", "nan", "0", "-1"])
def test_an_interval_that_is_none_does_not_keep_a_program_from_its_device(
    folder, monkeypatch, caplog, seconds
):
    monkeypatch.setenv("STAGECOACH_TOP_INTERVAL", seconds)
    with Context(CountingDevice()) as context:
        assert context.fpdus_sent == 0
    told = f"STAGECOACH_TOP_INTERVAL is {seconds!r} seconds; allowed: 0.05 to 3600"
    assert told in caplog.text
    assert files_of(folder) == []


def test_a_folder_that_cannot_be_reached_does_not_keep_a_program_from_its_device(
    monkeypatch, tmp_path, capsys
):
    # Not by mode bits, which do not stop root.
    monkeypatch.setenv(VARIABLE, str(tmp_path / ("x" * 300)))
    with Context(CountingDevice()) as context:
        assert context.fpdus_sent == 0
    assert look_once() == 1
    assert "allowed without COMMAND" in capsys.readouterr().err


BAD_FILES = {
    "no JSON": b"{",
    "not UTF-8": b"\xff\xfe\xfd",
    "nested": b"[" * 100_000,
    "a number with more digits than Python reads": b"9" * 10_000,
    "empty": b"",
    "no object": b"[]",
    "nothing in it": b"{}",
    "large": b" " * (5 << 20),
}


def changed(**changes: object) -> bytes:
    opened = snapshot_of(1.0, 0, 0)
    return json.dumps({**opened, "opened": opened, **changes}).encode()


QP = snapshot_of(1.0, 0, 0)["qps"][0]
BAD_FILES |= {
    f"field {number}": changed(**change)
    for number, change in enumerate(
        [
            {"time": "now"},
            {"time": float("nan")},
            {"time": 10**400},
            {"cycles": -1},
            {"cycles": True},
            {"cycles": 1 << 64},
            {"open": 1},
            {"device": 7},
            {"program": ["[/x]"]},
            {"opened": None},
            {"opened": {}},
            {"counters": None},
            {"counters": False},
            {"total": {}},
            {"total": []},
            {"stopped": {"[/x]": 1}},
            {"stopped": {"CRC_ERROR": "1"}},
            {"stopped": []},
            {"dropped_fpdus": "many"},
            {"events_not_counted": -1},
            {"a_counter_of_a_later_version": "text"},
            {"qps": 5},
            {"qps": [5]},
            {"qps": [{}]},
            {"qps": [QP | {"state": "[/x]"}]},
            {"qps": [QP | {"state": ["RTS"]}]},
            {"qps": [QP | {"cause": 5}]},
            {"qps": [QP | {"octets_sent": 0.5}]},
            {"qps": [QP | {"qp": {}}]},
        ]
    )
}


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("octets", BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_told_and_the_others_are_shown(folder, capsys, octets, as_json):
    path = folder / "1-0.json"
    path.write_bytes(octets)
    with Context(CountingDevice()):
        assert look_once(*["--json"] * as_json) == 0
    out, err = capsys.readouterr()
    if as_json:
        (line,) = map(json.loads, out.splitlines())
        assert line["device"].startswith(f"{os.getpid()}.")
        assert err.startswith(f"{path} is not shown: ")
    else:
        assert "(fake)" in out and "1-0.jsonisnotshown:" in "".join(out.split())


def test_a_good_file_with_a_counter_of_a_later_version_is_shown(folder, capsys):
    (folder / f"{os.getpid()}-99999.json").write_bytes(changed(dropped_completions=4))
    assert look_once("--json") == 0
    assert json.loads(capsys.readouterr().out)["dropped_completions"] == 4


def test_what_is_no_regular_file_is_not_waited_for(folder, tmp_path):
    os.mkfifo(folder / "1-0.json")
    (folder / "1-1.json").mkdir()
    (tmp_path / "elsewhere").write_bytes(changed())
    (folder / "1-2.json").symlink_to(tmp_path / "elsewhere")
    (folder / "1-3.json").symlink_to("/dev/zero")
    (folder / "999999999999999999999-0.json").write_bytes(changed())
    (folder / "0x1-2y.json").write_bytes(changed())
    command = [sys.executable, "-m", "stagecoach.cli", "top", "--once", "--json"]
    done = subprocess.run(command, cwd=ROOT, timeout=30, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    told = [line.partition(" is not shown: ")[::2] for line in done.stderr.splitlines()]
    assert [Path(path).name for path, _ in told] == [f"1-{number}.json" for number in range(4)]
    assert told[0][1] == "not a regular file"
    assert [why for _, why in told[2:]] == ["it is a symbolic link"] * 2


def test_the_private_folder_is_that_of_the_user_alone(runtime, monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, "1")
    umask = os.umask(0)
    try:
        with Context(CountingDevice()):
            assert stat.filemode(runtime.lstat().st_mode) == "drwx------"
            monkeypatch.delenv(VARIABLE)
            assert look_once("--json") == 0  # by default it looks there
    finally:
        os.umask(umask)
    assert json.loads(capsys.readouterr().out)["open"]


def test_without_a_runtime_folder_the_private_one_has_the_number_of_the_user(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "1")
    with Context(CountingDevice()):
        pass
    (folder,) = files_of(tmp_path)
    assert folder.name == f"stagecoach-top-{os.geteuid()}"


@pytest.mark.parametrize("what", ["mode", "link", "file"])
def test_a_private_folder_that_is_not_private_is_refused(
    runtime, monkeypatch, tmp_path, capsys, caplog, what
):
    if what == "mode":
        runtime.mkdir()
        runtime.chmod(0o750)
    elif what == "link":
        (tmp_path / "of others").mkdir(mode=0o700)
        runtime.symlink_to(tmp_path / "of others")
    else:
        runtime.touch(mode=0o600)
    assert look_once() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{runtime} has mode" in line and "allowed: a folder (drwx------) of user" in line
    monkeypatch.setenv(VARIABLE, "1")
    with Context(CountingDevice()):
        pass
    assert "stagecoach top does not see this device" in caplog.text
    if what != "file":
        assert files_of(runtime) == []


def test_files_of_processes_that_ended_are_removed_from_the_private_folder(runtime, monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    runtime.mkdir(mode=0o700)
    (runtime / "999999999-0.json").write_bytes(changed())
    (runtime / "notes.json").write_text("not of a device")
    with Context(CountingDevice()):
        names = [path.name for path in files_of(runtime)]
    assert "999999999-0.json" not in names and "notes.json" in names and len(names) == 2
