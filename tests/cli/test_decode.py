"""`stagecoach decode`: text, JSON, colours, pager, and files that are none."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from stagecoach.cli.main import main

ROOT = Path(__file__).parents[2]
CAPTURE = str(ROOT / "tests/data/captures/crc1-p2p-rping-64.pcap")
COMMAND = [sys.executable, "-m", "stagecoach.cli", "decode"]
LINES = 25  # one for the connection, two startup frames, 22 FPDUs


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What a terminal shows."""
    leader, follower = pty.openpty()
    environment = {"TERM": "xterm-256color", "NO_COLOR": "", "COLUMNS": "80"} | environment
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=ROOT, env=os.environ | environment, stdout=follower
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            octets = os.read(leader, 1 << 16)
        except OSError:  # Linux: the other end is closed
            break
        if not octets:
            break
        shown += octets
    os.close(leader)
    assert process.wait(30) == 0
    return shown.decode()


def test_text_has_one_line_per_frame_and_no_colours(capsys):
    assert main(["decode", CAPTURE]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert (len(lines), err) == (LINES, "")
    assert "\x1b" not in out
    assert lines[0] == "connection 1: 10.0.2.15:34452 → 10.0.2.2:7174"
    assert lines[3] == (
        "     8    0.081368 1→ RDMA Write            STag 0x00000001, TO 0x0, 0 octets, RTR frame, "
        "CRC good"
    )


def test_json_has_one_object_per_line(capsys):
    assert main(["decode", "--json", CAPTURE]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [item["kind"] for item in objects] == ["request", "reply", *["fpdu"] * (LINES - 3)]
    assert objects[2]["message"] == "RDMA Write"
    assert objects[2]["ready_to_receive"] is True
    assert all(item["problems"] == [] for item in objects)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is neither pcap nor pcapng: it is empty"),
        (b"no capture\n", "is neither pcap nor pcapng: it starts with 6e6f2063"),
        (Path(CAPTURE).read_bytes()[:24], "has no MPA Request Frame"),
        (Path(CAPTURE).read_bytes()[:-3], "is cut or broken after packet 45: a record has"),
    ],
)
@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_bad_file_is_one_line_and_status_1(tmp_path, capsys, content, message, option):
    path = tmp_path / "bad"
    path.write_bytes(content)
    assert main(["decode", str(path), *option]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("stagecoach decode: CaptureError: ")
    assert message in err


@pytest.mark.parametrize("path", ["/no/such/file", "/", "/dev/zero"])
def test_what_is_no_file_is_one_line_and_status_2(path, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["decode", path])
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"cannot read {path}" in err


def test_a_terminal_gets_colours_and_a_pager():
    shown = on_a_terminal(CAPTURE, PAGER="sed s/^/paged:/")
    assert shown.count("paged:") == LINES
    assert "\x1b[" in shown
    assert "RDMA Read Request" in shown


def test_the_own_variable_of_the_pager_goes_before_the_common_one():
    shown = on_a_terminal(CAPTURE, PAGER="false", STAGECOACH_PAGER="sed s/^/mine:/")
    assert shown.count("mine:") == LINES


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (["--no-pager"], {"PAGER": "false"}),
        ([], {"PAGER": ""}),
        ([], {"PAGER": "cat"}),
        ([], {"PAGER": "/no/such/pager"}),
        ([], {"PAGER": " "}),
        ([], {"PAGER": "less '"}),
    ],
)
def test_without_a_pager_a_terminal_gets_the_lines(options, environment):
    shown = on_a_terminal(*options, CAPTURE, **environment)
    assert shown.count("\r\n") == LINES
    assert "\x1b[" in shown


def test_lines_are_not_wrapped():
    shown = on_a_terminal("--no-pager", CAPTURE, NO_COLOR="1")
    assert max(map(len, shown.splitlines())) > 100


def test_a_pager_may_be_asked_for_without_a_terminal():
    done = run("--pager", CAPTURE, PAGER="sed s/^/paged:/")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("paged:") == LINES
    assert "\x1b" not in done.stdout


def test_no_pager_without_a_terminal():
    done = run(CAPTURE, PAGER="sed s/^/paged:/")
    assert "paged:" not in done.stdout


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_pager_that_is_left_early_is_no_error(tmp_path, option):
    script = much(tmp_path)
    done = subprocess.run(
        [sys.executable, str(script), "decode", "--pager", CAPTURE, *option],
        cwd=ROOT,
        env=os.environ | {"PAGER": "head -n 3", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 3


def test_a_pipe_that_is_left_early_is_no_error(tmp_path):
    with subprocess.Popen(
        [sys.executable, str(much(tmp_path)), "decode", CAPTURE],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None and command.stderr is not None
        assert command.stdout.readline()
        command.stdout.close()
        assert command.stderr.read() == ""
    assert command.returncode == 0


def much(folder: Path) -> Path:
    """A program that is `stagecoach` but decodes far more than a pipe holds."""
    script = folder / "many.py"
    script.write_text(
        "import sys\n"
        "from stagecoach.cli import main\n"
        "from stagecoach.sim.capture import decode\n"
        "whole = decode.decode_file\n"
        "def many(path):\n"
        "    found = whole(path)\n"
        "    found.items.extend(found.items * 200)\n"
        "    return found\n"
        "decode.decode_file = many\n"
        "sys.exit(main.main(sys.argv[1:]))\n"
    )
    return script


def test_a_terminal_without_unicode_gets_ascii():
    done = run(CAPTURE, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "1> RDMA Write" in done.stdout
    assert len(done.stdout.splitlines()) == LINES
