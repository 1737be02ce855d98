"""`--device sim://...`: a device with a network of its own for every command, and its errors."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stagecoach.cli.main import main
from stagecoach.host_driver import locate
from stagecoach.host_driver.locate import DeviceNameError, parse_device

pytestmark = [pytest.mark.usefixtures("compiled_device"), pytest.mark.timeout(240)]

SECONDS = 100
COMMAND = [sys.executable, "-m", "stagecoach.cli"]


def card(wire: str, number: int, options: str = "") -> str:
    return f"sim://?wire={wire}&ip=192.0.2.{number}/24&tcp=reference{options}"


@contextmanager
def server(path: Path) -> Iterator[subprocess.Popen[str]]:
    """`stagecoach rping -s` at 192.0.2.1, which waits at the socket of its wire."""
    device = card(f"unix-listen:{path}", 1)
    arguments = ["rping", "-s", "-d", "-P", "--device", device]
    with subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "listening at port 7174" in process.stderr.readline()
            yield process
        finally:
            process.kill()


def client(path: Path, *arguments: str, ip: int = 2, options: str = "") -> tuple[int, str]:
    device = card(f"unix:{path}", ip, options)
    done = subprocess.run(
        [*COMMAND, "rping", "-c", "-C", "3", "-V", "-d", *arguments, "--device", device],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    return done.returncode, done.stderr


def test_rping_of_two_processes_on_a_wire_that_loses_frames(tmp_path):
    with server(tmp_path / "wire") as serving:
        options = "&loss=0.02&duplicate=0.02&reorder=0.02"
        status, told = client(tmp_path / "wire", "-a", "192.0.2.1", options=options)
        assert (status, told.splitlines()[-1]) == (0, "rping: done")
        assert serving.stderr is not None
        lines = [serving.stderr.readline() for _ in range(2)]
        assert "closed after 3 pings" in lines[1]


@pytest.mark.parametrize(
    ("arguments", "message", "ip"),
    [
        (["-a", "192.0.2.1", "-p", "9"], r"192\.0\.2\.1:9 refused the connection", 2),
        (["-a", "198.51.100.7"], r"no route to 198\.51\.100\.7: .* no gateway", 2),
        (["-a", "192.0.2.77"], r"192\.0\.2\.77 does not answer ARP requests", 2),
        (["-a", "192.0.2.1"], r"192\.0\.2\.1 belongs to the interface 02:00:c0:00:02:01", 1),
    ],
    ids=["refused", "no route", "no neighbour", "duplicate address"],
)
def test_what_goes_wrong_is_one_line(tmp_path, arguments, message, ip):
    with server(tmp_path / "wire"):
        options = "&mac=02:00:00:00:00:09"
        status, told = client(tmp_path / "wire", *arguments, ip=ip, options=options)
    assert status == 1
    assert told.count("\n") == 1
    assert re.search(message, told), told


def test_info_shows_the_network(capsys, tmp_path):
    device = card(f"pair:{tmp_path.name}", 5, "&mtu=9000&gw=192.0.2.1")
    assert main(["info", "--json", "--device", device]) == 0
    assert json.loads(capsys.readouterr().out)["network"] == {
        "tcp": "reference",
        "wire": f"pair:{tmp_path.name}",
        "ip": "192.0.2.5/24",
        "gateway": "192.0.2.1",
        "mac": "02:00:c0:00:02:05",
        "mtu": 9000,
        "carrier": "down: no peer yet",
    }


def test_devices_shows_one_that_is_named(capsys, tmp_path):
    device = card(f"pair:{tmp_path.name}", 5)
    assert main(["devices", "--json", "--device", device]) == 0
    (row,) = (row for row in json.loads(capsys.readouterr().out) if row["device"] == device)
    assert (row["kind"], row["state"]) == ("sim", "ready")
    assert row["configuration"]["tcp"] == "reference"


@pytest.mark.parametrize(
    ("device", "status", "message"),
    [
        ("sim://?wire=tap:no-such-tap&ip=192.0.2.1/24", 1, "no-such-tap: no such TAP"),
        ("sim://?wire=unix:/no/such/path&ip=192.0.2.1/24", 1, "no such path"),
        ("sim://?wire=pair:x&ip=192.0.2.1/24&mtu=575", 2, "mtu is '575'; allowed: 576 to 9000"),
        ("sim://?wire=pair:x&ip=192.0.2.0/24", 2, "ip is '192.0.2.0/24'; allowed"),
        ("sim://?wire=pair:x&ip=192.0.2.1/24&gw=10.0.0.1", 2, "gw is '10.0.0.1'; allowed"),
        ("sim:pair:x", 2, "address is 'sim:pair:x'; allowed: sim://?wire="),
    ],
)
def test_a_wrong_wire_is_one_line(capsys, device, status, message):
    try:
        found = main(["info", "--device", device])
    except SystemExit as exit_:
        found = int(str(exit_.code))
    told = capsys.readouterr().err
    assert (found, told.count("\n")) == (status, 1)
    assert message in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nic", "0.3"], "loss is '0.3'; allowed: 0 to 0.2"),
        (["--nic", "much"], "loss is 'much'; allowed: 0 to 0.2"),
        (["--nic", "0", "--waves"], "--nic has devices of its own"),
    ],
)
def test_a_wrong_demonstration_is_one_line(capsys, arguments, message):
    with pytest.raises(SystemExit):
        main(["demo", *arguments])
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and message in told


def test_an_installation_without_the_card_says_so(monkeypatch):
    monkeypatch.setattr(locate, "entry_points", lambda **_: ())
    with pytest.raises(DeviceNameError, match="no transport 'sim'; allowed: after it is installed"):
        parse_device(card("pair:x", 1))


def test_the_name_of_a_card_is_that_of_a_device():
    locator = parse_device(card("pair:x", 1))
    assert locator.is_card and not locator.is_simulated and locator.port is None
