"""`stagecoach devices`: what it finds without a build, and its one line for each."""

from stagecoach.cli.devices import command as devices
from stagecoach.cli.devices.command import find_devices
from stagecoach.host_driver.locate import parse_device


def test_a_simulated_device_that_is_not_built_is_not_built_to_be_listed(monkeypatch):
    def build(progress):
        progress("export Verilog")

    monkeypatch.setattr("stagecoach.cli.devices.command.build_device", build)
    simulated, missing = find_devices([parse_device("serial:///dev/no-port")], 9600)[:2]
    assert simulated["state"] == "not built: the first command that uses it does that"
    assert simulated["configuration"]["qps"] == 64
    assert missing["state"] == "cannot open /dev/no-port: No such file or directory"


def test_each_device_has_one_line_of_80_columns(monkeypatch, capsys):
    rows = [
        {"device": "simulation", "state": "not built: the first command that uses it does that"},
        {
            "device": "serial:///dev/ttyUSB0?baud=3000000",
            "state": "ready",
            "clock_hz": 62_500_000,
            "configuration": {"version": "3.3", "max_qp": 64, "max_mr": 1024, "max_cq": 64},
        },
        {"device": "serial:///dev/ttyUSB1?baud=3000000", "state": "cannot open it: " + 80 * "x"},
    ]
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(devices, "find_devices", lambda named, baud: rows)
    assert devices.show_devices([], 9600, as_json=False) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["device", "clock", "version", "QPs", "STags", "state"]
    assert len(lines) == len(rows) and max(map(len, lines)) <= 80
    assert lines[1].split() == [rows[1]["device"], "62.5", "MHz", "3.3", "64", "1024", "ready"]
    assert "cannot op" in lines[2] and lines[2].endswith("\N{HORIZONTAL ELLIPSIS}")


LONG = "serial:///dev/serial/by-id/usb-FTDI_Dual_RS232-HS_FT4232H-{}-port0?baud=2000000"


def test_a_long_address_is_cut_in_its_middle(monkeypatch, capsys):
    ready = {
        "state": "ready",
        "clock_hz": 156_250_000,
        "configuration": {"version": "3.3", "max_qp": 64, "max_mr": 1024},
    }
    rows = [
        {"device": "simulation", "state": "not built: the first command that uses it does that"},
        {"device": LONG.format("if01"), **ready},
        {"device": LONG.format("if02"), **ready},
        {"device": "serial:///dev/ttyS0?baud=2000000", "state": "not asked: name it"},
    ]
    assert len(rows[1]["device"]) > 80
    monkeypatch.setattr(devices, "find_devices", lambda named, baud: rows)

    def shown(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert devices.show_devices([], 9600, as_json=False) == 0
        return capsys.readouterr().out.splitlines()

    heading, simulated, first, second, serial = shown(80)
    assert max(map(len, (heading, simulated, first, second, serial))) <= 80
    assert heading.split()[1:] == ["clock", "version", "QPs", "STags", "state"]
    for line, channel in ((first, "if01"), (second, "if02")):
        address, *rest = line.split()
        assert rest == ["156.25", "MHz", "3.3", "64", "1024", "ready"]
        begin, end = address.split("\N{HORIZONTAL ELLIPSIS}")
        assert begin and LONG.format(channel).startswith(begin)
        assert LONG.format(channel).endswith(end)
    assert first != second
    assert serial.endswith("not asked: name it") and "not built: " in simulated
    assert shown(160)[2].split()[0] == LONG.format("if01")
    assert all(len(line) <= 40 for line in shown(40))


def test_devices_are_listed_whatever_they_are_called(monkeypatch, capsys):
    monkeypatch.setattr(devices, "_simulated", lambda: {"device": "[/a]", "state": "\x1b[/b]"})
    monkeypatch.setattr(devices.list_ports, "comports", list)
    named = parse_device("serial:///no/such/[/port]")
    assert devices.show_devices([named], 9600, as_json=False) == 0
    output = capsys.readouterr().out
    for text in ("[/a]", "\\x1b[/b]", "[/port]", "cannot open"):
        assert text in output
