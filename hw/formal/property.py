"""What a property is: of which block, what it says, how it is shown, and how it can be broken."""

from collections.abc import Callable
from dataclasses import dataclass

from stagecoach.hw.formal.harness import Harness, Model
from stagecoach.hw.formal.paths import Netlist

PROMPT = "smtbmc --nopresat z3"
UNROLLED = "smtbmc --nopresat --unroll z3"
"""Engines of sby: the second one is for arithmetic without memories."""


@dataclass(frozen=True)
class Mutation:
    """A change of one place in the source of a module, e.g. `gateware.stream.fork`."""

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Rebuilt:
    """A change that is made where the model is built: `build` makes that of the broken block."""

    name: str
    build: Callable[[], Model]


@dataclass(frozen=True)
class Property:
    """What is shown about a block.

    block: where its class is, below `gateware`, e.g. `stream.fork.Fork`.
    name: the property, as a sentence.
    build: makes the model: `in_harness(...)`, or one of Verilog.
    mutations: each of them alone makes the property fail; at least one.
    depth: cycles of the induction, or, of a bounded property, from the reset.
    bounded: why it is not shown by induction; empty if it is.
    covered: cycles from the reset within which everything is met that the model covers; 0 if it
        covers nothing. A bounded property needs it: it guards against a proof of nothing.
    reached: cycles from any state that fulfils the assertions, within which everything is met that
        the model covers: for what is far from the reset. 0: not attempted.
    mutant_cycles: in which a mutant breaks a claim, after a state that the assertions allow.
    engine: line of sby's section [engines].
    netlist: finds what is wrong in the netlist of the model, instead of a proof by sby. Its name
        and the model decide about it.
    """

    block: str
    name: str
    build: Callable[[], Model]
    mutations: tuple[Mutation | Rebuilt, ...]
    depth: int = 2
    bounded: str = ""
    covered: int = 0
    reached: int = 0
    mutant_cycles: int = 8
    engine: str = PROMPT
    netlist: Callable[[Netlist], list[str]] | None = None

    def __post_init__(self) -> None:
        if self.bounded and not self.covered:
            raise ValueError(f"{self.block}: {self.name}: bounded, but nothing is covered")

    @property
    def key(self) -> str:
        return f"{self.block}: {self.name}"


def in_harness(build: Callable[[Harness], None]) -> Callable[[], Model]:
    """The model that `build` makes in a harness."""

    def model() -> Model:
        harness = Harness()
        build(harness)
        return harness.model()

    return model
