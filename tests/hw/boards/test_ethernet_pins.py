"""The Ethernet of a board goes through all tools, on the board's pins, and its clock is reached."""

import json
from pathlib import Path

import pytest
from amaranth.hdl import Elaboratable, Module
from amaranth.lib import io

from stagecoach.hw import bitstream
from stagecoach.hw.boards.board import find
from stagecoach.hw.boards.ethernet import PHY_HZ, EthernetPort, connect_phy


class Echo(Elaboratable):
    """Stands for the top: what comes from the wire goes back to it."""

    def __init__(self, board):
        self._board = board

    def elaborate(self, platform):
        m = Module()
        m.submodules.port = port = EthernetPort()
        connect_phy(m, platform, port, self._board.clock_hz)
        for name in ("tvalid", "tdata", "tkeep", "tlast"):
            m.d.comb += getattr(port.tx, name).eq(getattr(port.rx, name))
        m.submodules.led = led = io.Buffer("o", platform.request("rgb_led", 0, dir="-").r)
        counted = port.crc_errors ^ port.preamble_errors ^ port.discarded
        m.d.comb += led.o.eq(port.up ^ port.rx.tuser ^ counted.xor())
        return m


@pytest.mark.slow
def test_ethernet_on_the_pins_of_a_board(monkeypatch, tmp_path):
    monkeypatch.setattr(bitstream, "BoardTop", Echo)
    # The tools are WebAssembly, and see no folder but this one and those below.
    folder = Path("build/bitstream/ethernet")
    monkeypatch.setattr(bitstream, "FOLDER", folder)
    monkeypatch.setattr(bitstream, "RESULT", tmp_path / "bitstream.json")
    bitstream.build(find("ecpix5-85"))
    assert (folder / "ecpix5-85.bit").stat().st_size > 10_000
    # What was built of earlier sources is there, too.
    report = max(folder.glob("*/report_*.json"), key=lambda path: path.parent.stat().st_mtime)
    clocks = json.loads(report.read_text())["fmax"].values()
    assert sorted(clock["constraint"] for clock in clocks) == [100, PHY_HZ / 1e6]
    assert all(clock["achieved"] > clock["constraint"] for clock in clocks)
