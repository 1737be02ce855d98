"""Blocks of the device by name and by class."""

import pytest
from amaranth.hdl import Fragment

from gateware.config import RnicConfig
from gateware.mpa.deframer import Deframer
from gateware.queues.qp_fifo import QpFifo
from hw import blocks
from hw.harness import CHAIN_BITS, Harness

CONFIG = RnicConfig(qps=4, cqs=4, stags=16)


def test_all_blocks_are_found():
    found = blocks.blocks(CONFIG)
    assert {"framer", "mpa_receiver", "stag_table", "inbound_requests"} <= set(found)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mpa_receiver.deframer", Deframer),
        ("gateware.mpa.deframer", Deframer),
        ("gateware.mpa.deframer:Deframer", Deframer),
        ("outstanding_requests", QpFifo),
    ],
)
def test_block_has_the_parameters_of_the_device(name, kind):
    found = blocks.find(CONFIG, name)
    assert type(found) is kind
    assert found._config is CONFIG


@pytest.mark.parametrize("name", ["frmer", "mpa_receiver.x", "gateware.mpa.deframer:X"])
def test_unknown_name_is_refused(name):
    with pytest.raises(blocks.NoSuchBlock, match="allowed"):
        blocks.find(CONFIG, name)


def test_harness_has_one_pin_per_chain():
    harness = Harness(blocks.find(CONFIG, "qp_states"))
    inputs = sum(len(port) for port in harness._inputs)
    assert len(harness.scan_in) == -(-inputs // CHAIN_BITS)
    Fragment.get(harness, None)
