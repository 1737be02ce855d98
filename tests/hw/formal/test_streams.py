"""Every stream of the device is found, and what breaks a rule of streams is seen."""

import json
import re

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.stream.fork import Fork
from stagecoach.hw.formal.device import blocks, stream_names, streams
from stagecoach.hw.formal.harness import GATEWARE, TOP
from stagecoach.hw.formal.paths import Netlist
from stagecoach.hw.formal.properties import streams as stream_properties
from stagecoach.hw.formal.property import PROMPT, in_harness
from stagecoach.hw.formal.prove import Mode, Task, prove
from stagecoach.hw.rtlil import export
from tests.support.blocks import component_classes


def test_every_block_of_the_gateware_is_found_in_a_device():
    found = {place.name for place in blocks()}
    assert found == {
        f"{kind.__module__.removeprefix(GATEWARE)}.{kind.__name__}" for kind in component_classes()
    }


def test_every_output_stream_is_in_a_property():
    proved = " ".join(each.name for each in stream_properties.PROPERTIES)
    for place in blocks():
        for output in place.outputs:
            left_out = stream_properties.ELSEWHERE.get(place.name, ())
            assert output in left_out or (output in proved and place.path in proved)


def test_every_output_stream_is_seen_to_rise_but_those_whose_ready_is_never_low():
    places = [place for place in blocks() if place.outputs]
    for place, each in zip(places, stream_properties.PROPERTIES, strict=True):
        assert each.block == place.name and each.reached == 1
        if place.name in ("stream.fork.Fork", "dma.read.ReadEngine"):
            taken = stream_properties.ALWAYS_TAKEN.get(place.name, ())
            covers = {f"cover_{re.sub(r'[^a-z0-9]+', '_', name)}" for name in place.outputs}
            covers -= {f"cover_{re.sub(r'[^a-z0-9]+', '_', name)}" for name in taken}
            assert set(each.build().covers) == covers


@pytest.mark.parametrize("kind", ["good", "waits"])
def test_valid_that_never_rises_while_ready_is_low_is_seen(kind, tmp_path):
    def build(h):
        dut = Passes(kind)
        h.block(dut)
        stream_properties.rises(h, "o", dut.o)

    outcome = prove(Task(in_harness(build)(), Mode.REACH, 1, PROMPT), tmp_path)
    assert outcome.passed == (kind == "good")


def test_exceptions_are_ports_that_exist():
    ports = {place.name: (*place.outputs, *place.inputs) for place in blocks()}
    for table in (
        stream_properties.NOT_HELD,
        stream_properties.ASSUMED,
        stream_properties.ELSEWHERE,
        stream_properties.ALWAYS_TAKEN,
    ):
        for name, names in table.items():
            assert set(names) <= set(ports[name])


def test_streams_of_arrays_and_of_nested_ports_are_named():
    names = [(name, is_output) for name, is_output, _ in streams(Fork(8, 2))]
    assert names == [("i", False), ("o[0]", True), ("o[1]", True)]
    assert "rnic.read_engine.clients__0__data" in stream_names("board")


class Passes(wiring.Component):
    """Shows its input; `kind` says what is wrong with it."""

    i: In(stream.Signature(4))
    o: Out(stream.Signature(4))

    def __init__(self, kind):
        self._kind = kind
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        seen = Signal()
        m.d.sync += seen.eq(self.o.ready)
        m.d.comb += [
            self.o.payload.eq(self.i.payload ^ (seen if self._kind == "payload" else 0)),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready),
        ]
        if self._kind == "valid":
            m.d.comb += self.o.valid.eq(self.i.valid & seen)
        if self._kind == "waits":
            waited = Signal()  # through a register: no path leads from ready to valid
            m.d.sync += waited.eq(self.i.valid & (waited | self.o.ready))
            m.d.comb += self.o.valid.eq(self.i.valid & waited)
        if self._kind == "path":
            m.d.comb += self.o.valid.eq(self.i.valid & (self.o.ready | seen))
        return m


@pytest.mark.parametrize("kind", ["good", "valid", "payload"])
def test_word_that_does_not_stay_is_a_counterexample(kind, tmp_path):
    def build(h):
        dut = Passes(kind)
        h.block(dut)
        h.assume(h.held(dut.i))
        h.check("o", h.held(dut.o))

    outcome = prove(Task(in_harness(build)(), Mode.INDUCTION, 2, PROMPT), tmp_path)
    assert outcome.passed == (kind == "good")


@pytest.mark.parametrize("kind", ["good", "valid", "path"])
def test_path_from_ready_to_valid_is_found(kind, tmp_path):
    task = Task(_flat(Passes(kind)), Mode.NETLIST, 0, "", _waits)
    assert prove(task, tmp_path).passed == (kind != "path")


def _flat(component):
    from stagecoach.hw.formal.harness import Model

    return Model({"dut.il": export(component, TOP)}, ("read_rtlil dut.il", "proc", "flatten"))


def _waits(netlist):
    waits = netlist.reaches(netlist.bits("o__ready"), netlist.bits("o__valid"))
    return ["o"] if waits else []


def netlist_of(tmp_path, cells):
    nets = {name: {"bits": [bit]} for name, bit in (("a", 2), ("b", 3), ("c", 4))}
    text = json.dumps({"modules": {TOP: {"netnames": nets, "cells": cells}}})
    (tmp_path / "netlist.json").write_text(text)
    return Netlist(tmp_path / "netlist.json", TOP)


def cell(kind, parameters=(), **ports):
    ways = {name: "output" if name in ("Y", "Q", "DATA") else "input" for name in ports}
    return {
        "type": kind,
        "parameters": dict(parameters),
        "connections": ports,
        "port_directions": ways,
    }


@pytest.mark.parametrize(
    "one, reached",
    [
        (cell("$and", A=[2, 3], B=["1", "1"], Y=[9, 4]), False),
        (cell("$and", A=[3, 2], B=["1", "1"], Y=[9, 4]), True),
        (cell("$add", A=[2, 3], B=["0", "1"], Y=[9, 4]), True),
        (cell("$mux", A=["0", "0"], B=["0", "0"], S=[2], Y=[9, 4]), True),
        (cell("$mux", A=[2, "0"], B=["0", "0"], S=[3], Y=[9, 4]), False),
        (cell("$dff", D=[2], CLK=[5], Q=[4]), False),
        (cell("$memrd_v2", {"CLK_ENABLE": "0"}, ADDR=[2], DATA=[4]), True),
        (cell("$memrd_v2", {"CLK_ENABLE": "1"}, ADDR=[2], DATA=[4]), False),
    ],
)
def test_cells_that_a_path_goes_through(one, reached, tmp_path):
    netlist = netlist_of(tmp_path, {"one": one})
    assert netlist.reaches(netlist.bits("a"), netlist.bits("c")) == reached
