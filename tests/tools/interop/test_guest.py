"""Jobs, and the guest behind a QEMU that is a script."""

import sys
from contextlib import closing

import pytest

from tools.interop import guest, host
from tools.interop.errors import InteropError
from tools.interop.guest import Guest
from tools.interop.image import Image
from tools.interop.job import Job, JobError

QEMU = """\
import json, socket, sys

def connected(after):
    at = [n for n, x in enumerate(sys.argv) if x.startswith("unix:") and sys.argv[n - 1] == after]
    end = socket.socket(socket.AF_UNIX)
    end.connect(sys.argv[at[0]].removeprefix("unix:"))
    return end.makefile("rw", newline="\\n")

def say(text):
    control.write(text)
    control.flush()

control, monitor = connected("-serial"), connected("-qmp")
print(json.dumps({"QMP": {}}), file=monitor, flush=True)
monitor.readline()
print(json.dumps({"event": "RESUME"}), file=monitor)
print(json.dumps({"return": {}}), file=monitor, flush=True)
say("READY\\r\\n")
for line in control:
    number, command = line.split(maxsplit=1)
    if command.startswith("reset"):
        monitor.readline()
        print(json.dumps({"return": {}}), file=monitor, flush=True)
        say("READY\\n")
    elif command.startswith("fail"):
        say(f"{number}|it failed\\n{number}=3\\n")
    elif command.startswith("die"):
        sys.exit()
    elif command.startswith("object"):
        monitor.readline()
        print(json.dumps({"error": {"desc": "no such netdev"}}), file=monitor, flush=True)
    else:
        say(f"99|of nobody\\n{number}|=7|{command.strip()}\\n{number}=0\\n")
"""


def booted(tmp_path, monkeypatch, script):
    program = tmp_path / "qemu"
    program.write_text(f"#!{sys.executable}\n{script}")
    program.chmod(0o755)
    monkeypatch.setattr(guest, "QEMU", str(program))
    return Guest.boot(Image(tmp_path / "vmlinuz", tmp_path / "initramfs", {}), tmp_path, (7174,))


def test_commands_of_a_guest_print_and_end(tmp_path, monkeypatch):
    with closing(booted(tmp_path, monkeypatch, QEMU)) as linux:
        assert linux.run("echo hello") == ["=7|echo hello"]
        with pytest.raises(JobError, match="guest: fail ended with status 3: it failed"):
            linux.run("fail")
        lost = linux.start("reset")
        linux.reset()
        assert lost.status is not None
        assert linux.run("again") == ["=7|again"]
        linux.start("object")
        with pytest.raises(InteropError, match="QEMU: object-add: no such netdev"):
            with linux.captured("wire", tmp_path / "capture"):
                pass


def test_a_guest_that_has_gone_ends_its_commands(tmp_path, monkeypatch):
    with closing(booted(tmp_path, monkeypatch, QEMU)) as linux:
        with pytest.raises(JobError, match="guest: die ended with status 1"):
            linux.run("die")
        with pytest.raises(InteropError, match="system_reset: it has ended"):
            linux.reset()


def test_a_qemu_that_ends_at_once_is_quoted(tmp_path, monkeypatch):
    with pytest.raises(InteropError, match="ended: no memory"):
        booted(tmp_path, monkeypatch, "import sys; sys.exit('no memory')")


def command_of(tmp_path, joins=None):
    image = Image(tmp_path / "vmlinuz", tmp_path / "initramfs", {})
    wires = [tmp_path / "wire0", tmp_path / "wire1"] if joins is None else []
    return guest._command(image, tmp_path, {7174: 40000}, wires, joins)


def test_offloads_of_both_interfaces_are_off(tmp_path):
    command = command_of(tmp_path)
    cards = [x for x in command if x.startswith("virtio-net-pci")]
    assert len(cards) == 2 and all("csum=off" in x and "guest_tso4=off" in x for x in cards)
    assert "user,id=user,hostfwd=tcp:127.0.0.1:40000-:7174" in command


def test_a_wire_is_a_hub_with_ports_or_a_port_of_another_one(tmp_path):
    first, second = command_of(tmp_path), command_of(tmp_path, tmp_path / "wire1")
    for number in range(2):
        path = tmp_path / f"wire{number}"
        stream = f"stream,id=socket{number},server=on,addr.type=unix,addr.path={path}"
        assert stream in first and f"hubport,id=port{number},hubid=0,netdev=socket{number}" in first
    assert f"stream,id=wire,server=off,addr.type=unix,addr.path={tmp_path / 'wire1'}" in second
    assert not any("hubport" in x for x in second)
    differ = ("mac=", "WIRE_ADDRESS=")
    told = [
        {part for x in command for part in x.replace(",", " ").split() if part.startswith(differ)}
        for command in (first, second)
    ]
    assert len(told[0]) == len(told[1]) == 3 and not told[0] & told[1]


def test_a_job_ends_without_what_was_waited_for():
    ended = Job("rping -s")
    ended.feed("listening at port 5")
    assert ended.wait_for("port") == "listening at port 5"
    with pytest.raises(JobError, match=r"rping -s: waited 0\.01 s for it to print 'port'"):
        ended.wait_for("port", 0.01, count=2)
    ended.end(1)
    with pytest.raises(JobError, match="rping -s ended without 'closed': listening at port 5"):
        ended.wait_for("closed")
    with pytest.raises(JobError, match="ended with status 1: listening at port 5"):
        ended.finish()


def test_a_command_of_stagecoach_ends_with_its_status(tmp_path):
    running = host.start("no-such-command", folder=tmp_path)
    with pytest.raises(JobError, match=r"no-such-command ended with status 2: .*invalid"):
        running.finish()
    running.stop()
