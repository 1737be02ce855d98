"""`stagecoach memory-server`: its options, and what keeps it from serving."""

import pytest

from stagecoach.cli.main import main
from stagecoach.host_driver.locate import parse_device
from stagecoach.hw.interface.device_memory import MOST_MEMORY

FAST = False  # opens whole devices

pytestmark = [pytest.mark.usefixtures("compiled_device"), pytest.mark.timeout(240)]


def card(name: str, options: str = "") -> str:
    return f"sim://?wire=pair:{name}&ip=192.0.2.1/24&tcp=reference{options}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "0"], f"size is 0; allowed: 1 to {MOST_MEMORY} bytes"),
        (["--size", "65GiB"], f"size is 65GiB; allowed: 1 to {MOST_MEMORY} bytes"),
        (["--size", "much"], "invalid size 'much' (expected a size such as 4096 or 64KiB)"),
        (["-p", "65536"], "port is 65536; allowed: 0 to 65535"),
        (["--device", card("a", "&memory=1KiB")], "memory is '1KiB'; allowed: 4KiB to 64GiB"),
        (["--device", card("a", "&memory=65GiB")], "memory is '65GiB'; allowed: 4KiB to 64GiB"),
        (["--device", card("a", "&memory=")], "memory is ''; allowed: 4KiB to 64GiB"),
        (["--ip", "192.0.2.9/24"], "--ip with device simulation; allowed: with sim://"),
        (["--ip", "192.0.2.9/24&gw=192.0.2.1", "--device", card("a")], "allowed: an IPv4 address"),
        (["--ip", "192.0.2.9", "--device", card("a")], "ip is '192.0.2.9'; allowed: the IPv4"),
        (["--ip", "192.0.2.255/24", "--device", card("a")], "ip is '192.0.2.255/24'; allowed"),
        (["extra"], "unrecognized arguments: extra"),
    ],
)
def test_bad_options_are_one_line_and_status_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["memory-server", *arguments])
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.endswith("\n")
    assert message in err


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["memory-server", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.startswith("stagecoach memory-server: ")
    return err


@pytest.mark.parametrize("size", [[], ["--size", "4KiB"]])
def test_a_device_without_memory_is_one_line(capsys, tmp_path, size):
    err = failure(capsys, "--device", card(tmp_path.name), *size)
    assert "the device has no memory of its own; allowed: a board with memory" in err


def test_more_than_it_has_is_one_line(capsys, tmp_path):
    device = card(tmp_path.name, "&memory=1MiB")
    err = failure(capsys, "--device", device, "--size", "1048577")
    assert "device memory of 1048577 bytes; allowed: up to 1048576" in err


@pytest.mark.parametrize(
    ("device", "same"),
    [
        ("serial:///dev/ttyUSB1", "serial:///dev/ttyUSB1?ip=192.0.2.9/24"),
        ("serial:///dev/ttyUSB1?baud=9600", "serial:///dev/ttyUSB1?baud=9600&ip=192.0.2.9/24"),
        ("serial:///dev/ttyUSB1?ip=1.2.3.4/8", "serial:///dev/ttyUSB1?ip=192.0.2.9/24"),
        (card("a"), card("a").replace("192.0.2.1/24", "192.0.2.9/24")),
    ],
)
def test_the_address_of_a_device_may_be_given_apart(monkeypatch, device, same):
    opened = []
    monkeypatch.setattr(
        "stagecoach.cli.memory_server.command.serve",
        lambda device, *_: opened.append(device) or 0,
    )
    assert main(["memory-server", "--device", device, "--ip", "192.0.2.9/24"]) == 0
    assert opened == [parse_device(same)]
