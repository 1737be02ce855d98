"""`stagecoach decode`: text, JSON, colours, pager, and files that are none."""

import itertools
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stagecoach.cli.main import main
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.rdmap import Opcode, control_octet
from tests.sim.capture.decoding import TO_RESPONDER, conversation, written

ROOT = Path(__file__).parents[2]
CAPTURE = str(ROOT / "tests/data/captures/crc1-p2p-rping-64.pcap")
COMMAND = [sys.executable, "-m", "stagecoach.cli", "decode"]
LINES = 26  # one for the connection, two startup frames, 22 FPDUs, the summary


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
        "     8    0.081368 1→ RDMA Write            STag 0x00000001, TO 0x0, 0 bytes, RTR frame, "
        "CRC good"
    )
    assert lines[-1] == "22 FPDUs in 1 connection, no problem"


@pytest.fixture
def two(tmp_path):
    """Two connections; in the second one a Send has a wrong CRC, and what follows is dropped."""
    send = UntaggedHeader(0, 1, rsvd_ulp=control_octet(Opcode.SEND)).encode() + b"octets"
    write = TaggedHeader(5, 0, rsvd_ulp=control_octet(Opcode.RDMA_WRITE)).encode() + b"octets"
    both = [(TO_RESPONDER, write), (TO_RESPONDER, send)]
    broken = conversation(*both)
    direction, octets = broken[-1]
    broken[-1] = direction, octets[:-1] + bytes([octets[-1] ^ 1])
    return str(written(tmp_path / "two.pcapng", conversation(*both), broken))


@pytest.mark.parametrize(
    ("options", "shown", "of"),
    [
        ([], ["MPA Request", "MPA Reply", "RDMA Write", "Send"] * 2, ""),
        (["--connection", "2"], ["MPA Request", "MPA Reply", "RDMA Write", "Send"], "; 4 of 8"),
        (["--opcode", "send"], ["Send"] * 2, "; 2 of 8"),
        (["--opcode", "send", "--opcode", "rdma-write"], ["RDMA Write", "Send"] * 2, "; 4 of 8"),
        (["--opcode", "rdma-write", "--connection", "1"], ["RDMA Write"], "; 1 of 8"),
        (["--opcode", "terminate"], [], "; 0 of 8"),
        (["--problems"], ["Send"], "; 1 of 8"),
        (["--problems", "--connection", "1"], [], "; 0 of 8"),
    ],
)
def test_what_is_not_asked_for_is_not_shown(two, capsys, options, shown, of):
    assert main(["decode", two, *options]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    found = [line[22:42].strip() for line in lines if not line.startswith("connection")]
    assert found == shown
    assert last == "4 FPDUs in 2 connections, 1 problem" + (f"{of} items shown" if of else "")
    assert main(["decode", two, "--json", *options]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(objects) == len(shown)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--connection", "0"], "connection is 0; allowed: 1 to"),
        (["--opcode", "ping"], "invalid choice: 'ping'"),
    ],
)
def test_a_selection_that_is_none_is_one_line_and_status_2(options, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["decode", CAPTURE, *options])
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and message in err


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_connection_that_is_not_there_is_told(two, capsys, form):
    assert main(["decode", two, "--connection", "9", *form]) == 1
    message = f"stagecoach decode: {two} has no connection 9; allowed: 1 to 2\n"
    assert capsys.readouterr().err == message


def test_interrupts_are_for_the_pager(tmp_path):
    """While more is written than the pipe holds, and when all is written and the pager goes on."""
    go, end = tmp_path / "go", tmp_path / "end"
    pager = tmp_path / "pager"
    pager.write_text(
        "#!/bin/sh\ntrap '' INT\nhead -n 1\n"
        f"while [ ! -e {go} ]; do sleep 0.01; done\ncat\necho '(END)'\n"
        f"while [ ! -e {end} ]; do sleep 0.01; done\n"
    )
    pager.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, str(much(tmp_path)), "decode", "--pager", CAPTURE],
        cwd=ROOT,
        env=os.environ | {"PAGER": str(pager), "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as command:
        assert command.stdout is not None and command.stderr is not None
        first = command.stdout.readline()
        assert first.startswith("connection 1")
        for _ in range(3):
            command.send_signal(signal.SIGINT)
        go.touch()
        rest = list(itertools.takewhile(lambda line: line != "(END)\n", command.stdout))
        for _ in range(3):
            command.send_signal(signal.SIGINT)
            time.sleep(0.05)
        assert command.poll() is None
        end.touch()
        assert command.stdout.read() == ""
        assert command.stderr.read() == ""
    assert command.returncode == 0
    assert rest[-1].endswith("in 1 connection, no problem\n")


def test_json_has_one_object_per_line(capsys):
    assert main(["decode", "--json", CAPTURE]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [item["kind"] for item in objects] == ["request", "reply", *["fpdu"] * (LINES - 4)]
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
    assert err.startswith("stagecoach decode: ")
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
