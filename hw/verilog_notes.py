"""What the exported file says beside what Yosys writes: docstrings, and names of states.

Amaranth elaborates the device a second time for it, which takes a few seconds: the Verilog itself
is the text that the compiled simulation is built from.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from amaranth.hdl._ast import Signal, Value
from amaranth.hdl._ir import Fragment, PortDirection
from amaranth.lib.wiring import In

STATE_NAMES = "STAGECOACH_STATE_NAMES"
"""The macro with which a simulation has the names of states."""


@dataclass(frozen=True)
class Notes:
    """About one module. states: the names of each state register's values, from 0 on."""

    docstring: str
    states: dict[str, list[str]]


def notes(component: Any, top: str) -> dict[str, Notes]:
    """What there is to say about each module of a component, by the name in its Verilog."""
    ports = {
        "__".join(map(str, path)): (
            Value.cast(value),
            PortDirection.Input if member.flow is In else PortDirection.Output,
        )
        for path, member, value in component.signature.flatten(component)
    }
    design = Fragment.get(component, None).prepare(ports=ports, hierarchy=(top,))
    return {
        ".".join(names.name): Notes(
            _docstring(fragment),
            {
                name: state_names(signal)
                for signal, name in names.signal_names.items()
                if is_state(signal)
            },
        )
        for fragment, names in design.fragments.items()
    }


def _docstring(fragment: Fragment) -> str:
    """That of the component: those of Amaranth's library are not ours to copy."""
    kind = type(fragment.origins[0]) if fragment.origins else object
    if not kind.__module__.startswith("stagecoach."):
        return ""
    return inspect.cleandoc(kind.__doc__ or "")


def is_state(signal: Signal) -> bool:
    """Amaranth gives the register of an FSM a function that names its values."""
    return inspect.isfunction(signal.decoder)


def state_names(signal: Signal) -> list[str]:
    """The names of all states: the function answers "NAME/value", or raises KeyError."""
    found: list[str] = []
    try:
        while True:
            found.append(signal.decoder(len(found)).rpartition("/")[0])
    except KeyError:
        return found


def annotate(verilog: str, about: dict[str, Notes]) -> str:
    """Verilog with a comment above each module and names for the values of its state registers."""
    return "".join(_annotated_lines(verilog, about))


_MODULE = re.compile(r"module \\?([^\s(]+)")
_REGISTER = re.compile(r"  reg (?:\[\d+:0\] )?\\?(\S+) +=")


def _annotated_lines(verilog: str, about: dict[str, Notes]) -> Iterator[str]:
    states: dict[str, list[str]] = {}
    for line in verilog.splitlines(keepends=True):
        if match := _MODULE.match(line):
            note = about[match[1]]
            states = dict(note.states)
            for text in note.docstring.splitlines():
                yield f"// {text}".rstrip() + "\n"
        yield line
        if (match := _REGISTER.match(line)) and match[1] in states:
            yield from _state_names(match[1], states.pop(match[1]))


def _state_names(register: str, names: list[str]) -> Iterator[str]:
    """A text beside a state register: a waveform shows it as ASCII."""
    width = max(map(len, names))
    name = f"\\{register} " if "$" in register else register
    yield f"`ifdef {STATE_NAMES}\n"
    yield f"  wire [{8 * width - 1}:0] \\{register}.name  =\n"
    for value, text in enumerate(names):
        yield f'    {name} == {value} ? "{text}" :\n'
    yield '    "?";\n'
    yield "`endif\n"
