"""What `info` and `devices` tell of a device is what its registers say."""

import pytest

from stagecoach.cli.describe import capabilities, in_words, sizes
from stagecoach.cli.devices import command as devices
from stagecoach.cli.devices.command import find_devices
from stagecoach.host_driver import Context, registers
from stagecoach.host_driver.enums import WROpcode
from stagecoach.host_driver.locate import parse_device
from tests.host_driver.fake_device import CQS, QPS, READS, STAGS_LOG2, FakeDevice

OF_RFC_5040 = {
    *(WROpcode.RDMA_WRITE, WROpcode.RDMA_READ, WROpcode.SEND, WROpcode.SEND_WITH_INV),
    *(WROpcode.LOCAL_INV, WROpcode.REG_MR),
}
IMMEDIATE = {WROpcode.IMM_DATA, WROpcode.RDMA_WRITE_WITH_IMM}
ATOMICS = {WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.ATOMIC_CMP_AND_SWP}


@pytest.mark.parametrize(
    ("has", "more"),
    [
        ({}, set()),
        ({"immediate_data": 1}, IMMEDIATE),
        ({"atomics": 1}, ATOMICS),
        ({"atomics": 1, "swap": 1, "immediate_data": 1}, set(WROpcode) - OF_RFC_5040),
    ],
)
def test_operations_are_those_of_the_device(has, more):
    device = FakeDevice()
    device.words[registers.CAPABILITIES.address] = registers.CAPABILITIES.pack(**has)
    with Context(device) as context:
        attr = context.query_device()
    assert set(attr.operations) == OF_RFC_5040 | more
    assert capabilities(attr)["operations"] == [opcode.name for opcode in attr.operations]
    found = {"max_qp": QPS, "max_cq": CQS, "max_mr": 1 << STAGS_LOG2, "max_qp_rd_atom": READS}
    assert found.items() <= sizes(attr).items()


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


def test_values_are_told_in_words():
    assert [in_words(one) for one in (True, False, 3, [], ["A", "B"])] == [
        *("yes", "no", "3", "none", "A, B")
    ]
