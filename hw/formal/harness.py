"""What stands around a block in a proof: free inputs, assumptions, assertions, a look inside."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume, Cat, Cover, Instance, Module, Signal, Value
from amaranth.hdl._ast import Switch
from amaranth.hdl._dsl import FSMNextStatement
from amaranth.hdl._xfrm import TransformedElaboratable
from amaranth.lib import data, memory
from amaranth.lib.wiring import Out

from stagecoach.hw.rtlil import leave_collisions_undefined

TOP = "properties"
GATEWARE = "stagecoach.gateware."

_INVARIANT = "invariant"
"""The message of assertions that are no claims: Yosys knows them by it."""

_BUILT_IN = re.compile(r"cell \\\$(any\w+)")


@dataclass(frozen=True)
class Model:
    """What sby reads.

    files: texts by name.
    script: Yosys commands that read them and leave one flat module `properties`.
    values: wires of that module that a counterexample shows.
    claims, invariants: those of its wires of which one is 0 where an assertion fails; the latter
        are no part of the property, its induction needs them.
    covers: those of its wires that are 1 where something is covered.
    """

    files: Mapping[str, str]
    script: tuple[str, ...]
    values: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()

    @property
    def assertions(self) -> tuple[str, ...]:
        return (*self.claims, *self.invariants)

    def without_invariants(self) -> "Model":
        """The same, but that the invariants are not asserted. Their wires stay."""
        read, *rest = self.script
        return replace(self, script=(read, f"delete t:$check r:FORMAT={_INVARIANT} %i", *rest))


class Inside:
    """A component in a harness, elaborated, and what is inside it.

    `ports` is the component. Signals, states and submodules have the names of the source; those
    that a module drives can be read wherever they are.
    """

    def __init__(self, component: Any, reset: Any = 0):
        component._MustUse__used = True  # or Amaranth warns that it was never elaborated
        self.ports = component
        self.reset = reset
        """What resets it besides the reset: `ResetInserter`'s signal."""
        self.module = component.elaborate(None)
        self.module._flush()
        self.notes: dict[str, Any] = {}
        """What the functions of a proof keep of it for each other."""
        self._children: dict[str, Inside] = {}
        self._machines = _machines_of(self.module)

    def signal(self, name: str, number: int | None = None) -> Any:
        """The signal of that name which this module drives.

        Of several with one name, `number` says which, in the order in which they were made.
        """
        found = [signal for signal in self.module._driving if signal.name == name]
        if number is None and len(found) != 1:
            raise LookupError(f"{len(found)} signals are named {name!r}")
        return found[number or 0]

    def view(self, name: str, layout: Any, number: int | None = None) -> Any:
        """The signal of that name, which has the fields of a layout."""
        return data.View(layout, self.signal(name, number))

    def in_state(self, *states: str, fsm: str = "fsm") -> Value:
        """Whether a state machine is in one of the states.

        Of those that have one name, the second one is `fsm_2`, in the order of the source.
        """
        machine = self._machines[fsm]
        value, encoding = machine["signal"], machine["encoding"]
        return Value.cast(sum((value == encoding[name] for name in states), start=0) != 0)

    def machines(self) -> tuple[str, ...]:
        """Names of the state machines of this module."""
        return tuple(self._machines)

    def legal_state(self, fsm: str = "fsm") -> Value:
        """Whether a state machine is in any of its states: from an arbitrary one it need not be."""
        machine = self._machines[fsm]
        return Value.cast(machine["signal"] < len(machine["encoding"]))

    def memory(self, name: str) -> memory.Memory:
        """The memory that is a submodule of that name; `Harness.word` reads it."""
        found = self.module._named_submodules[name][0]
        if not isinstance(found, memory.Memory):
            raise LookupError(f"{name!r} is not a memory but {found!r}")
        return found

    def children(self) -> Iterator[tuple[str, "Inside"]]:
        """Names of submodules that are blocks of the device, and a look inside each."""
        for name, (submodule, _) in list(self.module._named_submodules.items()):
            known = self._children.get(name)
            if is_block(known.ports if known else without_reset(submodule)[0]):
                yield name, self.child(name)

    def child(self, name: str) -> "Inside":
        """A look inside a submodule."""
        if name not in self._children:
            submodule, location = self.module._named_submodules[name]
            component, transforms = without_reset(submodule)
            resets = [each.controls["sync"] for each in transforms]
            self._children[name] = child = Inside(component, Cat(self.reset, *resets).any())
            replacement = child.module
            if transforms:
                replacement = TransformedElaboratable(child.module)
                replacement._transforms_ = transforms
            self.module._named_submodules[name] = (replacement, location)
        return self._children[name]


def _machines_of(module: Module) -> dict[str, dict[str, Any]]:
    """The state machines of a module by name, each with its signal and the numbers of its states.

    `Module._generated` has only the last one of a name.
    """
    found: dict[int, dict[str, Any]] = {}

    def look(statements: Any) -> None:
        for each in statements:
            if isinstance(each, FSMNextStatement):
                found.setdefault(id(each.ctrl_data), each.ctrl_data)
            elif isinstance(each, Switch):
                for _, body, _ in each.cases:
                    look(body)

    for statements in module._statements.values():
        look(statements)
    machines: dict[str, dict[str, Any]] = {}
    for machine in found.values():
        name, number = machine["name"], 1
        while name in machines:
            number += 1
            name = f"{machine['name']}_{number}"
        machines[name] = machine
    return machines


def without_reset(submodule: Any) -> tuple[Any, list[Any]]:
    """A submodule without the `ResetInserter` around it, and what that does."""
    if isinstance(submodule, TransformedElaboratable):
        return submodule._elaboratable_, submodule._transforms_
    return submodule, []


def is_block(submodule: Any) -> bool:
    """Whether it is a block of the device, not one of Amaranth's library."""
    return type(submodule).__module__.startswith(GATEWARE)


class Harness:
    """A module around one block. Every input of the block that nothing here drives is free.

    The reset is free in every cycle: what was remembered of the cycle before is forgotten with it,
    but memories keep their content.
    """

    def __init__(self) -> None:
        self.m = Module()
        self._ports: list[Any] = []
        self._values: list[str] = []
        self._claims: list[str] = []
        self._invariants: list[str] = []
        self._covers: list[str] = []
        self._names: Counter[str] = Counter()
        self._pasts: dict[tuple[int, int], tuple[Value, Signal]] = {}
        self.started = Signal(name="started")
        """Not in the first cycle, nor in the first one after a reset: there was a cycle before."""
        self.m.d.sync += self.started.eq(1)

    def block(self, component: Any, name: str = "dut") -> Inside:
        """Put a block into the harness."""
        inside = Inside(component)
        self.m.submodules[name] = inside.module
        for _, _, port in component.signature.flatten(component):
            signal = Value.cast(port)
            if isinstance(signal, Signal):
                self._ports.append(signal)
        return inside

    def free_part(self, inside: Inside, name: str) -> Any:
        """Take a submodule out of a block: its outputs are any values, others in every cycle.

        Returns its component, for what is assumed of its outputs.
        """
        component, location = inside.module._named_submodules[name]
        component._MustUse__used = True
        inside.module._named_submodules[name] = (Module(), location)
        for path, member, port in component.signature.flatten(component):
            if member.flow == Out:
                self.expose(Value.cast(port), "_".join((name, *map(str, path))))
        return component

    def free_fifo(self, inside: Inside, name: str) -> Any:
        """The same of a FIFO of Amaranth's library, whose ports have no signature."""
        fifo, location = inside.module._named_submodules[name]
        fifo._MustUse__used = True
        inside.module._named_submodules[name] = (Module(), location)
        for port in ("w_rdy", "r_data", "r_rdy", "level"):
            if hasattr(fifo, port):  # an `AsyncFIFO` has no `level`
                self.expose(getattr(fifo, port), f"{name}_{port}")
        return fifo

    def expose(self, signal: Any, name: str) -> None:
        """Make a signal a port: free if nothing drives it. `name` tells it from others."""
        signal.name = name
        self._ports.append(signal)

    def free(self, shape: Any, name: str) -> Any:
        """A value that is another one, any one, in every cycle."""
        signal = Signal(shape, name=name)
        self._ports.append(Value.cast(signal))
        self._values.append(name)
        return signal

    def constant(self, shape: Any, name: str) -> Any:
        """A value that is any one, but the same in all cycles."""
        signal = Signal(shape, name=name)
        flat = Value.cast(signal)
        cell = Instance("$anyconst", p_WIDTH=len(flat), o_Y=flat)
        self.m.submodules[f"constant_{name}"] = cell
        self._values.append(name)
        return signal

    def past(self, value: Any, name: str | None = None, init: int = 0) -> Any:
        """The value in the cycle before; `init` when there was none.

        One register for each value: asked again about the same object, it is the same one, so what
        was proved of it holds for all who ask.
        """
        value = Value.cast(value)
        known = self._pasts.get((id(value), init))
        if known:
            return known[1]
        past = Signal(value.shape(), name=name or f"past_{len(self._pasts) + 1}", init=init)
        self.m.d.sync += past.eq(value)
        self._pasts[id(value), init] = value, past  # the value is kept: its id stays its own
        return past

    def show(self, name: str, value: Any) -> None:
        """Have a counterexample show a value."""
        value = Value.cast(value)
        shown = Signal(value.shape(), name=name, attrs={"keep": 1})
        self.m.d.comb += shown.eq(value)
        self._values.append(name)

    def word(self, store: Any, address: Any) -> Any:
        """What stands at an address of a memory, by a read port that only the harness has."""
        port = store.read_port(domain="comb")
        self.m.d.comb += port.addr.eq(address)
        return port.data

    def assume(self, condition: Any) -> None:
        """Leave out what does not fulfil a condition. docs/proofs.md says who guarantees it."""
        self.m.d.comb += Assume(condition)

    def check(self, name: str, condition: Any) -> None:
        """Assert a condition that the property claims; a counterexample tells its name."""
        signal = self._named("assert", name, condition)
        self._claims.append(signal.name)
        self.m.d.comb += Assert(signal)

    def invariant(self, name: str, condition: Any) -> None:
        """Assert a condition that the property does not claim, but its induction needs.

        A mutant has to break a claim: that it breaks an invariant shows nothing.
        """
        signal = self._named("invariant", name, condition)
        self._invariants.append(signal.name)
        self.m.d.comb += Assert(signal, _INVARIANT)

    def cover(self, name: str, condition: Any) -> None:
        """Ask for a sequence that meets a condition, which shows that something is guarded."""
        signal = self._named("cover", name, condition)
        self._covers.append(signal.name)
        self.m.d.comb += Cover(signal)

    def _named(self, kind: str, name: str, condition: Any) -> Any:
        slug = re.sub(r"\W+", "_", f"{kind} {name}")
        self._names[slug] += 1
        if self._names[slug] > 1:
            slug += f"_{self._names[slug]}"
        signal = Signal(name=slug, attrs={"keep": 1})
        self.m.d.comb += signal.eq(Value.cast(condition).bool())
        return signal

    def held(self, stream: Any, ready: Any = None) -> Value:
        """The rule of a stream: valid stays, and the payload with it, until it is ready.

        `ready` stands for that of the stream if it is given.
        """
        payload = Value.cast(stream.payload)
        waits = self.past(stream.valid & ~(stream.ready if ready is None else ready))
        return ~waits | (stream.valid & (payload == self.past(payload)))

    def model(self) -> Model:
        """What was built, as RTLIL."""
        ports = list({id(port): port for port in self._ports}.values())
        text = rtlil.convert(self.m, ports=ports, name=TOP, emit_src=False)
        text = leave_collisions_undefined(_BUILT_IN.sub(r"cell $\1", text))
        return Model(
            files={"properties.il": text},
            script=(
                "read_rtlil properties.il",
                f"prep -flatten -top {TOP}",
                "memory_nordff",
                # What is undefined may have any value: the tools must not choose one.
                "setundef -anyseq",
                "opt -full",
            ),
            values=tuple(self._values),
            claims=tuple(self._claims),
            invariants=tuple(self._invariants),
            covers=tuple(self._covers),
        )
