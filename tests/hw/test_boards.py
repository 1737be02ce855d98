"""Boards have pins, a clock that their PLL can make, and a UART; bad requests are told."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from amaranth.build import ResourceError
from amaranth.hdl import Fragment, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.hostlink.uart import UartReceiver, UartTransmitter, divisor_of
from stagecoach.hw import bitstream
from stagecoach.hw.boards.board import NAMES, NoSuchBoard, find
from stagecoach.hw.boards.top import PLL_HZ, BoardTop


@pytest.mark.parametrize("name", NAMES)
def test_every_board_has_what_its_top_needs(name):
    board = find(name)
    assert board.name == name
    platform = board.make_platform()
    divider, multiplier = board.pll
    reference = platform.default_clk_frequency / divider
    # The PLL multiplies by its feedback and output dividers, and divides by the output's again.
    assert reference * multiplier == board.clock_hz
    assert PLL_HZ % board.clock_hz == 0 and 10e6 <= reference <= 400e6
    Fragment.get(BoardTop(board), platform)
    platform.lookup("uart")
    with pytest.raises(ResourceError, match="already been requested"):  # the top has it
        platform.request("uart")


def test_other_boards_are_refused(capsys):
    with pytest.raises(
        NoSuchBoard, match="board 'zcu102'; allowed: ecpix5-85, ecpix5-45, ulx3s-85"
    ):
        find("zcu102")
    assert bitstream.main(["zcu102"]) == 1
    assert "bitstream: board 'zcu102'; allowed: " in capsys.readouterr().err


class Echo(wiring.Component):
    """Stands for the device: the UART, joined to itself."""

    def __init__(self, config, clock_hz, baud):
        self._divisor = divisor_of(clock_hz, baud)
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.receiver = receiver = UartReceiver(self._divisor)
        m.submodules.transmitter = transmitter = UartTransmitter(self._divisor)
        wiring.connect(m, receiver.o, transmitter.i)
        m.d.comb += [receiver.rx.eq(self.rx), self.tx.eq(transmitter.tx)]
        return m


def test_a_top_goes_through_all_tools(monkeypatch, tmp_path):
    """With a design that takes seconds and not an hour."""
    monkeypatch.setattr("stagecoach.hw.boards.top.SerialRnic", Echo)
    # The tools are WebAssembly, and see no folder but this one and those below.
    folder = Path("build/bitstream/echo")
    shutil.rmtree(folder, ignore_errors=True)
    monkeypatch.setattr(bitstream, "FOLDER", folder)
    monkeypatch.setattr(bitstream, "RESULT", tmp_path / "bitstream.json")
    row = bitstream.build(find("versa-5g"))
    assert row["device"] == "LFE5UM5G-45F, speed 8" and row["lut4_of"] == 43_848
    assert row["fmax_mhz"] > 100 and row["ff"] > 50
    assert (folder / "versa-5g.bit").stat().st_size > 10_000
    assert (folder / "versa-5g.svf").exists()
    (log,) = folder.glob("*/nextpnr_*.log")
    assert "Derived frequency constraint of 50.0 MHz" in log.read_text()


REPORT = {
    "fmax": {"$glbnet$clock": {"achieved": 61.0, "constraint": 50.0}},
    "utilization": {
        "TRELLIS_COMB": {"used": 30_000, "available": 43_848},
        "TRELLIS_FF": {"used": 29_000, "available": 43_848},
        "DP16KD": {"used": 63, "available": 108},
    },
}


@pytest.fixture
def flow(monkeypatch, tmp_path):
    """The flow without its tools."""
    monkeypatch.setattr(bitstream, "RESULT", tmp_path / "bitstream.json")
    monkeypatch.setattr(bitstream, "FOLDER", tmp_path)
    board = find("versa-5g")
    platform = board.make_platform()
    monkeypatch.setattr(bitstream, "sources", lambda board: (platform, {"il": "", "lpf": ""}))
    monkeypatch.setattr(bitstream, "synthesize", lambda board, texts: tmp_path)
    monkeypatch.setattr(bitstream, "pack", lambda board, platform, folder: folder / "versa-5g.bit")
    return tmp_path


def test_the_summary_says_what_is_used_and_what_is_left(monkeypatch, flow, capsys):
    monkeypatch.setattr(bitstream, "place", lambda platform, folder: REPORT)
    assert bitstream.main(["versa-5g"]) == 0
    row = json.loads((flow / "bitstream.json").read_text())["versa-5g"]
    assert (row["clock_mhz"], row["fmax_mhz"], row["margin"]) == (50.0, 61.0, 0.22)
    assert (row["lut4"], row["dp16kd"], row["dp16kd_of"]) == (30_000, 63, 108)
    out = capsys.readouterr().out
    assert "+22.0%" in out and "30,000 of 43,848, 68%" in out


def test_a_clock_that_is_not_reached_is_an_error(monkeypatch, flow, capsys):
    slow = REPORT | {"fmax": {"clock": {"achieved": 49.0, "constraint": 50.0}}}
    monkeypatch.setattr(bitstream, "place", lambda platform, folder: slow)
    assert bitstream.main(["versa-5g"]) == 1
    assert "versa-5g: 49.0 MHz, needed: 50.0 MHz" in capsys.readouterr().err
    assert not (flow / "bitstream.json").exists()


def test_results_that_cannot_be_read_are_told_before_a_bitstream_is_made(monkeypatch, flow, capsys):
    (flow / "bitstream.json").write_text('{"ulx3s-85": {')
    monkeypatch.setattr(bitstream, "place", lambda platform, folder: pytest.fail("was placed"))
    assert bitstream.main(["versa-5g"]) == 1
    assert "bitstream.json cannot be read" in capsys.readouterr().err


def test_programming_tells_what_is_missing(monkeypatch, flow, capsys):
    monkeypatch.setenv("OPENFPGALOADER", "/no/such/loader")
    assert bitstream.main(["--program", "versa-5g"]) == 1
    assert "/no/such/loader is not installed" in capsys.readouterr().err
    monkeypatch.setenv("OPENFPGALOADER", "true")
    assert bitstream.main(["--program", "versa-5g"]) == 1
    assert "run: make bitstream BOARD=versa-5g" in capsys.readouterr().err
    (flow / "versa-5g.bit").touch()
    calls = []
    done = subprocess.CompletedProcess([], 0)
    monkeypatch.setattr(subprocess, "run", lambda command, check: calls.append(command) or done)
    assert bitstream.main(["--program", "versa-5g"]) == 0
    assert calls == [["true", "-c", "ft2232", str(flow / "versa-5g.bit")]]
