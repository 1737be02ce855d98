"""Two ends on one machine that find each other by name."""

import os
import subprocess
import sys
import time

import pytest

from stagecoach.sim.wire.errors import NoSuchWire, PeerGone, WireInUse, WireNotPermitted
from stagecoach.sim.wire.pair import open_pair
from stagecoach.sim.wire.stream import StreamEnd

FRAME = bytes(range(60))

ECHO = """
from stagecoach.sim.wire.pair import open_pair
import select, sys
end = open_pair(sys.argv[1])
print("open", flush=True)
while True:
    select.select([end], [], [])
    frame = end.receive()
    if frame is not None:
        end.send(frame[::-1])
"""


@pytest.fixture
def name():
    return f"test-{os.getpid()}-{time.monotonic_ns()}"


def receive(end: StreamEnd) -> bytes:
    give_up = time.monotonic() + 30
    while (frame := end.receive()) is None:
        assert time.monotonic() < give_up
        time.sleep(0.001)
    return frame


def test_two_ends_in_one_process(name):
    first, second = open_pair(name), open_pair(name)
    assert first.connected
    assert second.connected
    assert first.send(FRAME)
    assert second.send(FRAME[::-1])
    assert (second.receive(), first.receive()) == (FRAME, FRAME[::-1])
    first.close()
    with pytest.raises(PeerGone):
        second.receive()
    second.close()


@pytest.mark.parametrize("accepted", [False, True])
def test_a_third_end_is_refused(name, accepted):
    ends = [open_pair(name), open_pair(name)]
    if accepted:
        assert ends[0].connected
    with pytest.raises(WireInUse, match=f"pair:{name}: it has two ends already"):
        open_pair(name)
    for end in ends:
        end.close()


def test_a_name_is_free_again_after_its_first_end(name):
    for _ in range(2):
        first, second = open_pair(name), open_pair(name)
        assert first.send(FRAME)
        assert second.receive() == FRAME
        second.close()
        first.close()


def test_frames_before_the_second_end_are_lost(name):
    first = open_pair(name)
    assert not first.connected
    assert first.receive() is None
    assert first.send(FRAME)
    second = open_pair(name)
    assert first.send(FRAME[::-1])
    assert second.receive() == FRAME[::-1]
    first.close()
    second.close()


def test_two_processes(name):
    with subprocess.Popen(
        [sys.executable, "-c", ECHO, name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "open\n"
            end = open_pair(name)
            for number in range(100):
                frame = number.to_bytes(4, "big") * 15
                assert end.send(frame)
                assert receive(end) == frame[::-1]
        finally:
            process.kill()
    with pytest.raises(PeerGone):
        receive(end)
    end.close()


def as_another_user(program: str, name: str) -> subprocess.Popen[str]:
    """A process of nobody with a socket `s` and the address `place` of the pair."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    start = f"""import os, socket
os.setuid(65534)
s = socket.socket(socket.AF_UNIX)
place = chr(0) + "stagecoach-wire-0-{name}"
"""
    arguments = [sys.executable, "-c", start + program]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_program_of_another_user_is_not_taken(name):
    end = open_pair(name)
    with as_another_user("s.connect(place); s.recv(1)", name) as process:
        try:
            while process.poll() is None:
                assert not end.connected
                time.sleep(0.001)
        finally:
            process.kill()
    assert process.returncode == 0  # it was accepted, and the stream closed
    other = open_pair(name)
    assert end.connected
    end.close()
    other.close()


def test_a_name_that_another_user_took_is_told(name):
    program = "s.bind(place); s.listen(); print('there', flush=True); input()"
    with as_another_user(program, name) as process:
        try:
            assert process.stdout.readline() == "there\n"
            with pytest.raises(WireNotPermitted, match=f"pair:{name}: a program of another user"):
                open_pair(name)
        finally:
            process.kill()


def test_a_pair_is_no_socket_of_the_file_system(name, tmp_path, monkeypatch):
    from stagecoach.sim.wire.stream import connect_stream

    monkeypatch.chdir(tmp_path)
    end = open_pair(name)
    with pytest.raises(NoSuchWire):
        connect_stream(name)
    end.close()
