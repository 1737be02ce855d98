"""`stagecoach capture`: headers of frames in words and in a file."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stagecoach.cli.capture.words import frame_in_words
from stagecoach.cli.main import main
from stagecoach.host_driver.snapshots.file import read_snapshot
from stagecoach.host_driver.snapshots.folder import FolderError
from stagecoach.host_driver.transport.network import HEAD_OCTETS
from stagecoach.sim.network.frame_log import FRAMES, FrameLog
from tests.cli.conftest import Work
from tests.host_driver.network.frames import FRAMES as VECTORS


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("arp-request", "ARP who has 192.0.2.2? tell 192.0.2.1"),
        ("arp-reply", "ARP 192.0.2.2 is at 02:00:00:00:00:02"),
        ("icmp-echo-request", "ICMP echo request, length"),
        ("syn-mss-only", "[S] seq"),
        ("frag-0", "fragment, protocol 17"),
        ("ipv6-syn", "IPv6 02:00:00:00:00:01 > 02:00:00:00:00:02"),
        ("vlan-data", "VLAN"),
    ],
)
def test_a_frame_in_words(name, words):
    assert words in frame_in_words(VECTORS[name])


def test_a_segment_in_words():
    """Literal octets: 192.0.2.1:40000 to 192.0.2.2:4420, ten octets from 2^32 - 4."""
    packet = (
        "4500 0032 0000 4000 4006 0000 c0000201 c0000202"  # 50 octets
        "9c40 1144 fffffffc 00000007 5018 01f6 0000 0000"
    )
    frame = bytes.fromhex("020000000002 020000000001 0800" + packet)
    assert frame_in_words(frame) == (
        "IP 192.0.2.1:40000 > 192.0.2.2:4420: [P.] seq 4294967292:6 ack 7 win 502 length 10"
    )


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_every_start_of_a_frame_is_one_line(name):
    for octets in range(min(len(VECTORS[name]), HEAD_OCTETS) + 1):
        assert "\n" not in frame_in_words(VECTORS[name][:octets])


def test_the_last_frames_are_kept_and_their_first_octets():
    log = FrameLog()
    for number in range(FRAMES + 5):
        log.note(number, bytes([number]) * (HEAD_OCTETS + number), sent=number % 2 == 0)
    heads = log.heads()
    assert [head.time_us for head in heads] == list(range(5, FRAMES + 5))
    assert heads[0].head == b"\5" * HEAD_OCTETS
    assert (heads[0].octets, heads[0].sent, heads[1].sent) == (HEAD_OCTETS + 5, False, True)


@pytest.fixture
def published(publishing: Callable[[Work], Path]) -> Path:
    """The snapshot of a card that has pinged."""
    return publishing(lambda nic, _: nic.stack.ping("192.0.2.2", octets=200))


@pytest.mark.usefixtures("compiled_device")
@pytest.mark.timeout(240)
def test_the_frames_of_a_card_are_shown(published, capsys):
    assert main(["capture"]) == 0
    lines = capsys.readouterr().out.splitlines()[-2:]
    assert " out IP 192.0.2.1 > 192.0.2.2: ICMP echo request, length 208 (242 bytes)" in lines[0]
    assert " in  IP 192.0.2.2 > 192.0.2.1: ICMP echo reply, length 208 (242 bytes)" in lines[1]
    assert main(["capture", "--json"]) == 0
    (network,) = json.loads(capsys.readouterr().out)
    assert network["frames"][-1]["octets"] == 242
    assert len(network["frames"][-1]["head"]) == 2 * HEAD_OCTETS


@pytest.mark.usefixtures("compiled_device")
@pytest.mark.timeout(240)
def test_the_frames_of_a_card_are_written_for_wireshark(published, tmp_path, capsys):
    file = tmp_path / "last.pcapng"
    assert main(["capture", "-w", str(file)]) == 0
    assert capsys.readouterr().out.endswith(f"frames in {file}\n")
    tshark = shutil.which("tshark")
    assert tshark is not None
    fields = ["-T", "fields", "-e", "frame.len", "-e", "frame.cap_len", "-e", "icmp.type"]
    seen = subprocess.run(
        [tshark, "-r", str(file), *fields], capture_output=True, text=True, check=True
    )
    assert seen.stdout.splitlines()[-2:] == ["242\t128\t8", "242\t128\t0"]


@pytest.mark.usefixtures("compiled_device")
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("head", "zz", "network.frames.head is 'zz'; allowed: at most 128 bytes"),
        ("head", "00" * 129, "network.frames.head is"),
        ("sent", 1, "network.frames.sent is 1; allowed: true, false"),
        ("time_us", -1, "network.frames.time_us is -1"),
    ],
)
def test_what_is_no_frame_is_not_believed(published, field, value, message):
    snapshot = json.loads(published.read_text())
    snapshot["network"]["frames"][0][field] = value
    published.write_text(json.dumps(snapshot))
    with pytest.raises(FolderError) as raised:
        read_snapshot(published)
    assert message in str(raised.value)


def test_without_a_program_it_says_so(folder, capsys):
    assert main(["capture"]) == 0
    assert "no program with a network was found; start it with" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["capture", "ip"])
def test_what_a_program_left_that_has_ended_is_not_read(command, folder, capsys):
    ended = subprocess.Popen(["true"])
    ended.wait()
    path = folder / f"{ended.pid}-0.json"
    path.write_text("{}")
    assert main([command]) == 0
    assert capsys.readouterr().err == ""
    path.rename(folder / f"{os.getpid()}-0.json")  # of a program that is there
    assert main([command]) == 0
    assert "is not shown: " in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_one_line(folder, tmp_path, capsys):
    assert main(["capture", "-w", str(tmp_path / "no" / "file")]) != 0
    assert capsys.readouterr().err.count("\n") == 1


def test_a_file_that_gets_full_is_named(folder, capsys):
    assert main(["capture", "-w", "/dev/full"]) == 1
    assert capsys.readouterr().err == "stagecoach capture: /dev/full: No space left on device\n"


def test_json_and_a_file_exclude_each_other(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["capture", "--json", "-w", "x"])
    assert ended.value.code == 2
    assert "allowed: one of them" in capsys.readouterr().err
