"""State diagrams: what is found in a machine, and that the page is that of this gateware."""

import sys

from amaranth import Module, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In

from stagecoach.hw import states
from stagecoach.hw.states import PAGE, Machine, Step, machines, page


class Kind(enum.Enum, shape=2):
    """What the machine below looks at."""

    ONE = 0
    TWO = 1
    THREE = 2


class Small(wiring.Component):
    """A machine with each kind of branch, and another beside it."""

    go: In(1)
    stop: In(1)
    kind: In(Kind)

    def elaborate(self, _: object) -> Module:
        m = Module()
        other = Signal()
        with m.FSM(init="WAIT"):
            with m.State("END"):
                m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(self.go & ~self.stop):
                    with m.Switch(self.kind):
                        with m.Case(Kind.ONE, Kind.TWO):
                            m.next = "END"
                        with m.Default():
                            m.d.sync += other.eq(1)
                            m.next = "WAIT"
                with m.Elif(
                    self.stop,
                ):
                    m.next = "END"
                with m.Else():
                    m.next = "WAIT"
        with m.FSM():
            with m.State("UP"), m.If(self.go), m.If(~self.stop):
                m.next = "DOWN"
            with m.State("DOWN"):
                m.next = "UP"
        return m


def test_steps_and_conditions_are_those_of_the_source(monkeypatch):
    monkeypatch.setattr(states, "DEVICES", {"small": Small, "the same again": Small})
    block = f"{__name__}.Small"
    first = "self.go & ~self.stop"
    assert machines() == [
        Machine(
            block,
            "WAIT",
            ["END", "WAIT"],
            [
                Step("END", "WAIT", ()),
                Step("WAIT", "END", (first, "self.kind = Kind.ONE, Kind.TWO")),
                Step("WAIT", "WAIT", (first, "otherwise")),
                Step("WAIT", "END", ("otherwise, self.stop",)),
                Step("WAIT", "WAIT", ("otherwise",)),
            ],
        ),
        Machine(
            block,
            "UP",
            ["UP", "DOWN"],
            [Step("UP", "DOWN", ("self.go", "~self.stop")), Step("DOWN", "UP", ())],
        ),
    ]


def test_the_page_is_that_of_this_gateware():
    assert PAGE.read_text() == page(), "`make states` makes it anew"


def test_without_the_repository_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["states"])
    # As in an installed wheel, which has no manual.
    monkeypatch.setattr(states, "PAGE", tmp_path / "docs" / "states.md")
    said = states.main()
    assert said == f"{tmp_path / 'docs'} is missing: `make states` needs the project's repository"
