"""`make boundaries` sees what is elaborated, finds what is allowed, and tells what is missing."""

import pytest
from amaranth.hdl import Fragment, Module
from amaranth.lib import wiring

from stagecoach.gateware.config import RnicConfig
from tests.support.boundaries import Built, Recorder, Row, ends, sizes


class Inner(wiring.Component):
    """Has a depth that it checks, and a number that it does not."""

    def __init__(self, depth, number=3):
        if depth < 2:
            raise ValueError(f"depth is {depth}; allowed: 2 and more")
        super().__init__({})

    def elaborate(self, platform):
        return Module()


class Outer(wiring.Component):
    """Reads one field of the configuration, and has a block in it."""

    def __init__(self, config):
        if config.data_width != 64:
            raise ValueError(f"data_width is {config.data_width}; allowed: 64")
        self.qps = config.qps
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = Inner(self.qps)
        return m


@pytest.fixture
def recorder(monkeypatch):
    # What it replaces is put back after the test.
    monkeypatch.setattr(wiring.Component, "__init__", wiring.Component.__init__)
    monkeypatch.setattr(RnicConfig, "__getattribute__", RnicConfig.__getattribute__)
    recorder = Recorder()
    monkeypatch.setattr("tests.support.boundaries.RECORDER", recorder)
    recorder.start()
    return recorder


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_blocks_of_what_is_elaborated_are_seen_with_their_sizes(recorder):
    Inner(7)  # and never elaborated
    Fragment.get(Outer(RnicConfig(qps=16)), None)
    found = {built.block: dict(sizes(built)) for built in recorder.tested}
    assert found[Outer] == {"config.data_width": 64, "config.qps": 16}
    assert found[Inner] == {"depth": 16, "number": 3}


def test_the_smallest_value_is_what_the_constructor_takes():
    assert ends(Built(Inner, {"depth": 8}), "depth", {8, 16}) == (2, 16)


def test_the_range_of_an_argument_that_is_not_checked_is_that_of_devices():
    assert ends(Built(Inner, {"depth": 8, "number": 5}), "number", {3, 5}) == (3, 5)


def test_a_field_has_the_range_of_the_configuration_without_what_the_block_refuses():
    outer = Built(Outer, {"config": RnicConfig()})
    assert ends(outer, "config.qps", set()) == (2, 256)
    assert ends(outer, "config.data_width", set()) == (64, 64)


@pytest.mark.parametrize(
    ("tested", "in_devices", "missing"),
    [([2, 8], [], []), ([2], [8], []), ([4], [8], [2]), ([2, 4], [], [8]), ([4], [], [2, 8])],
)
def test_an_end_that_nobody_elaborates_is_missing(tested, in_devices, missing):
    assert Row("block", "depth", 2, 8, tested, in_devices).missing == missing
