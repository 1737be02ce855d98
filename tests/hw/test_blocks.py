"""Blocks of the device by name and by class."""

import pytest
from amaranth.hdl import Fragment

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.deframer import Deframer
from stagecoach.gateware.tcp.ranges import Ranges
from stagecoach.hw import blocks
from stagecoach.hw.harness import CHAIN_BITS, Harness

CONFIG = RnicConfig(qps=4, cqs=4, stags=16)


def test_all_blocks_are_found():
    found = blocks.blocks(CONFIG)
    assert {"framer", "mpa_receiver", "stag_table", "inbound_requests"} <= set(found)


@pytest.mark.parametrize(
    "name",
    [
        "mpa_receiver.deframer",
        "stagecoach.gateware.mpa.deframer",
        "stagecoach.gateware.mpa.deframer:Deframer",
    ],
)
def test_block_is_found_with_the_parameters_of_the_device(name):
    found = blocks.find(CONFIG, name)
    assert type(found) is Deframer
    assert len(found.closed.qp) == CONFIG.qp_bits


def test_a_block_outside_the_device_has_its_defaults():
    found = blocks.find(CONFIG, "stagecoach.gateware.tcp.ranges:Ranges")
    assert type(found) is Ranges
    assert len(found.first) == 32


@pytest.mark.parametrize(
    "name",
    [
        "frmer",
        "mpa_receiver.x",
        "stagecoach.gateware.mpa.deframer:X",
        "stagecoach.gateware.mpa.nothing:X",
        "stagecoach.gateware.mpa.layouts:MpaLayouts",
    ],
)
def test_unknown_name_is_refused(name):
    with pytest.raises(blocks.NoSuchBlock, match="allowed"):
        blocks.find(CONFIG, name)


def test_harness_has_one_pin_per_chain():
    harness = Harness(blocks.find(CONFIG, "qp_states"))
    inputs = sum(len(port) for port in harness._inputs)
    assert len(harness.scan_in) == -(-inputs // CHAIN_BITS)
    Fragment.get(harness, None)
