"""`stagecoach wire`: TAPs in a network namespace of the test's own, other wires, and errors."""

import os
import pwd
import socket
import subprocess

import pytest

from stagecoach.cli.main import main
from stagecoach.cli.wire import options
from stagecoach.sim.wire import tap
from stagecoach.sim.wire.errors import WireError
from tests.linux.namespace import in_namespace

ADDRESS = "sim://?wire=unix:wire.sock&ip=192.0.2.2/24"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SUDO_USER", raising=False)
    return tmp_path


@pytest.mark.parametrize("name", ["tap0", "tap:tap0"])
def test_a_tap_is_set_up_and_can_be_opened(name, capsys):
    def body() -> None:
        assert main(["wire", name]) == 0
        told = capsys.readouterr().out.splitlines()
        user = pwd.getpwuid(os.getuid()).pw_name
        assert told[0] == f"tap:tap0: up, 192.0.2.1/24, MTU 1500, of user {user}"
        assert told[1] == "device: sim://?wire=tap:tap0&ip=192.0.2.2/24"
        assert told[-1] == "remove: `ip link delete tap0` as root"
        assert main(["wire", told[1].removeprefix("device: ")]) == 0
        assert capsys.readouterr().out.startswith("tap:tap0: it is there, and up\n")

    in_namespace(body)


def test_a_tap_has_the_address_mtu_and_user_that_are_given(capsys):
    def body() -> None:
        given = ["--ip", "198.51.100.9/30", "--mtu", "9000", "--user", "nobody"]
        assert main(["wire", "tap0", *given]) == 0
        told = capsys.readouterr().out.splitlines()
        assert told[0] == "tap:tap0: up, 198.51.100.9/30, MTU 9000, of user nobody"
        assert told[1] == "device: sim://?wire=tap:tap0&ip=198.51.100.10/30&mtu=9000"
        show = ["ip", "-details", "addr", "show", "tap0"]
        shown = subprocess.run(show, capture_output=True, text=True, check=True).stdout
        for what in ("198.51.100.9/30", "mtu 9000", "tun type tap", "persist on user nobody"):
            assert what in shown

    in_namespace(body)


@pytest.mark.parametrize(("mode", "needs"), [(0o600, True), (0o666, False)])
def test_a_device_file_that_the_user_may_not_open_is_told(mode, needs, folder, capsys, monkeypatch):
    from stagecoach.cli.wire import command

    clone = folder / "tun"
    clone.touch()
    clone.chmod(mode)
    monkeypatch.setattr(tap, "CLONE", str(clone))
    monkeypatch.setattr(command, "set_up_tap", lambda *_: None)
    assert main(["wire", "tap0", "--user", "nobody"]) == 0
    told = f"needs: nobody may not open {clone}; `chmod 666 {clone}` as root"
    assert (told in capsys.readouterr().out.splitlines()) == needs


def test_a_whole_address_is_shown(capsys):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("wire.sock")
        listener.listen()
        more = "&gw=192.0.2.1&loss=0.01&rx_loss=0&delay_us=2.5&seed=7&pcap=none.pcapng"
        assert main(["wire", ADDRESS + more]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "unix:wire.sock: a program is there",
        "ip 192.0.2.2/24, gateway 192.0.2.1, MAC 02:00:c0:00:02:02, MTU 1500",
        "rings rx 256 KiB, tx 256 KiB, least RTO 200 ms",
        "tx loss 0.01, duplicate 0, reorder 0, corrupt 0, delay_us 2.5, rate_gbps 10, seed 7",
        "rx loss 0, duplicate 0, reorder 0, corrupt 0, delay_us 2.5, rate_gbps 10, seed 7",
        "pcap none.pcapng",
    ]
    assert not os.path.exists("none.pcapng")


def test_a_path_to_listen_at_is_free_afterwards(capsys):
    for _ in range(2):
        assert main(["wire", "unix-listen:wire.sock"]) == 0
        assert capsys.readouterr().out == "unix-listen:wire.sock: a program can connect\n"
    assert not os.path.exists("wire.sock")


def test_a_pair_is_free_afterwards(capsys):
    name = f"pair:test-{os.getpid()}"
    for _ in range(2):
        assert main(["wire", name]) == 0
        assert capsys.readouterr().out == f"{name}: the other end can come\n"


@pytest.mark.parametrize(
    ("pcap", "why"),
    [
        ("none/wire.pcapng", "No such file or directory"),
        ("file/wire.pcapng", "Not a directory"),
        (".", "Is a directory"),
        ("denied/wire.pcapng", "Permission denied"),
        ("denied", "Permission denied"),
    ],
)
def test_a_capture_that_cannot_be_opened_is_one_line(pcap, why, folder, capsys, monkeypatch):
    (folder / "file").touch()
    (folder / "denied").mkdir() if "/" in pcap else (folder / "denied").touch()
    # Root may write anywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: not path.endswith("denied"))
    address = f"sim://?wire=unix-listen:wire.sock&ip=192.0.2.2/24&pcap={pcap}"
    assert main(["wire", address]) == 1
    assert capsys.readouterr() == ("", f"stagecoach wire: pcap={pcap}: {why}\n")


def test_a_capture_that_is_there_is_left_as_it_is(folder, capsys):
    (folder / "old").write_text("frames")
    assert main(["wire", "sim://?wire=unix-listen:wire.sock&ip=192.0.2.2/24&pcap=old"]) == 0
    assert (folder / "old").read_text() == "frames"


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        ("unix:none.sock", "unix:none.sock: no such path"),
        ("unix:file", "unix:file: not a socket"),
        ("unix-listen:file", "unix-listen:file: a file that is not a socket exists there"),
        ("unix-listen:none/wire.sock", "unix-listen:none/wire.sock: no such folder"),
        (ADDRESS, "unix:wire.sock: no such path"),
        (
            "sim://?wire=tap:none&ip=192.0.2.2/24",
            "tap:none: no such TAP; `stagecoach wire none` as root makes it",
        ),
    ],
)
def test_a_wire_that_cannot_be_opened_is_one_line(wire, message, folder, capsys):
    (folder / "file").touch()
    assert main(["wire", wire]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith(f"stagecoach wire: {message}")


def test_a_machine_without_taps_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr(tap, "CLONE", "/no/such/device")
    assert main(["wire", "tap0"]) == 1
    assert capsys.readouterr().err == (
        "stagecoach wire: tap:tap0: no /no/such/device; `modprobe tun` as root makes it\n"
    )


def test_a_user_without_the_right_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr(tap, "CLONE", "/proc/1")  # a folder: it cannot be opened for writing
    assert main(["wire", "tap0"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "wire: tap:tap0: /proc/1: Is a directory; setting up a TAP needs root" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: WIRE"),
        (["tap/0"], "TAP is 'tap/0'; allowed: 1 to 15 ASCII characters"),
        (["cable:1"], "wire is 'cable:1'; allowed: tap:NAME, unix:PATH, unix-listen:PATH or pair"),
        ([ADDRESS + "&loss=2"], "loss is '2'; allowed: 0 to 1"),
        ([ADDRESS + "&colour=red"], "colour=red in address"),
        (["tap0", "--ip", "192.0.2.1"], "ip is '192.0.2.1'; allowed: the IPv4 address of a host"),
        (["tap0", "--ip", "192.0.2.1/32"], "ip is '192.0.2.1/32'; allowed: a prefix of up to 31"),
        (["tap0", "--mtu", "99"], "mtu is 99; allowed: 576 to 9000"),
        (["tap0", "--user", "no such"], "user is 'no such'; allowed: the name of a user"),
        (["pair:a", "--mtu", "1500"], "wire: --mtu is for a TAP that is set up; allowed: NAME"),
        ([ADDRESS, "--user", "root"], "wire: --user is for a TAP that is set up"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["wire", *arguments])
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_the_user_is_who_called_sudo(monkeypatch):
    assert options.this_user().pw_uid == os.getuid()
    monkeypatch.setenv("SUDO_USER", "nobody")
    assert options.this_user().pw_name == "nobody"
    monkeypatch.setenv("SUDO_USER", "nobody at all")
    assert options.this_user().pw_uid == os.getuid()


def test_a_user_without_a_name_has_to_be_named(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(WireError, match="user 4000000000 has no name; allowed: --user USER"):
        options.this_user()


def test_help(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["wire", "--help"])
    assert caught.value.code == 0
    assert "tap:NAME, unix:PATH" in capsys.readouterr().out.replace("\n", " ")
