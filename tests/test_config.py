"""Sizes that cannot be built are refused, and the message says which can."""

import dataclasses
import re
from pathlib import Path

import pytest

from stagecoach.gateware.config import RnicConfig


@pytest.mark.parametrize("width", [0, 16, 65, 256, "64"])
def test_widths_of_the_ports(width):
    with pytest.raises(ValueError, match=r"data_width is .*; allowed: 32, 64, 128"):
        RnicConfig(data_width=width)


def test_bursts_of_a_narrow_port_are_no_longer_than_those_of_axi():
    RnicConfig(data_width=32, max_burst_beats=128)
    RnicConfig(data_width=128, max_burst_beats=256)
    message = "max_burst_beats is 256; allowed: up to 128 with a data_width of 32"
    with pytest.raises(ValueError, match=message):
        RnicConfig(data_width=32, max_burst_beats=256)


def test_make_verilog_takes_every_size():
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    taken = re.search(r"^SIZES := ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    names = {field.name.upper() for field in dataclasses.fields(RnicConfig)}
    assert taken is not None and set(taken[1].replace("\\", "").split()) == names
