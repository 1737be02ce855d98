"""State diagrams of the larger machines of the gateware, made from the elaborated design.

`python -m stagecoach.hw.states` (`make states`) writes `docs/states.md`: for each machine of more
than `SMALL` states a diagram, and a table of its steps with the conditions as the source has them.
"""

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from amaranth.hdl._ast import Assign, Const, Signal, Switch
from amaranth.hdl._ir import Fragment
from amaranth.lib.wiring import Component

from stagecoach.hw.formal.device import DEVICES
from stagecoach.hw.verilog_notes import is_state, state_names

SMALL = 8
"""A machine of at most so many states is read in its source."""

BRANCHES = ("If", "Elif", "Else", "Case", "Default")
"""Of Amaranth's `Module`."""

Branches = tuple[tuple[str, int] | None, ...]
"""File and line of each branch around a statement, outermost first; none for what is added."""

PAGE = Path(__file__).resolve().parents[1] / "docs" / "states.md"

_INTRODUCTION = f"""# State machines

Made by `make states` from the elaborated design; a test compares this page with the gateware. It
has every machine of more than {SMALL} states. A machine stays in its state until a condition holds.
Where several rows of a state hold, the last one counts. Conditions are quoted from the source,
outermost first; *otherwise* means that the branches before it do not apply, also those that stay in
the state, which have no row.

"""


@dataclass(frozen=True)
class Step:
    """A change of state. conditions: as in the source, outermost first."""

    before: str
    after: str
    conditions: tuple[str, ...]


@dataclass
class Machine:
    """A state machine. block: module and class, below `gateware`. first: the state after reset.

    It has the states and the steps of all sizes of its block.
    """

    block: str
    first: str
    states: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def add(self, signal: Signal, switch: Switch) -> None:
        """Take the states and steps of one instance."""
        names = state_names(signal)
        steps = [
            step
            for value, statements in _cases(switch)
            for step in _steps(statements, signal, names[value], names, ())
        ]
        self.states += [name for name in names if name not in self.states]
        self.steps += [step for step in dict.fromkeys(steps) if step not in self.steps]


def machines() -> list[Machine]:
    """The machines of all devices that the project builds, each once, by the name of the block."""
    found: dict[tuple[str, int], Machine] = {}
    for make in DEVICES.values():
        for fragment in _fragments(Fragment.get(make(), None)):
            for number, (signal, switch) in enumerate(_switches(fragment)):
                block = _block(fragment)
                first = state_names(signal)[signal.init]
                machine = found.setdefault((block, number), Machine(block, first))
                machine.add(signal, switch)
    return [found[key] for key in sorted(found)]


def _block(fragment: Fragment) -> str:
    """Module and class: a renamed clock stands before them in the list of origins."""
    kind = next(type(origin) for origin in fragment.origins if isinstance(origin, Component))
    return f"{kind.__module__.removeprefix('stagecoach.gateware.')}.{kind.__name__}"


def _fragments(fragment: Fragment) -> Iterator[Fragment]:
    yield fragment
    for inner, _, _ in fragment.subfragments:
        yield from _fragments(inner)


def _switches(fragment: Fragment) -> Iterator[tuple[Signal, Switch]]:
    """What each machine of a block does at the clock's edge, with its state register."""
    for domain, statements in fragment.statements.items():
        if domain != "comb":
            yield from _switches_below(statements)


def _switches_below(statements: list[object]) -> Iterator[tuple[Signal, Switch]]:
    for statement in statements:
        if isinstance(statement, Switch):
            if isinstance(statement.test, Signal) and is_state(statement.test):
                yield statement.test, statement
            for _, inner, _ in statement.cases:
                yield from _switches_below(inner)


def _cases(switch: Switch) -> Iterator[tuple[int, list[object]]]:
    for patterns, statements, _ in switch.cases:
        for pattern in patterns:
            yield int(pattern, 2), statements


def _steps(
    statements: list[object], signal: Signal, state: str, names: list[str], branches: Branches
) -> Iterator[Step]:
    for statement in statements:
        if isinstance(statement, Assign):
            if statement.lhs is signal:
                assert isinstance(statement.rhs, Const)
                yield Step(state, names[statement.rhs.value], _conditions(branches))
        elif isinstance(statement, Switch):
            for _, inner, where in statement.cases:
                yield from _steps(inner, signal, state, names, (*branches, where))


def _conditions(branches: Branches) -> tuple[str, ...]:
    """What the `with` statements of branches say; those on one line stand there in their order."""
    return tuple(
        _condition(*where, branches[:number].count(where)) if where else "otherwise"
        for number, where in enumerate(branches)
    )


def _condition(file: str, line: int, number: int) -> str:
    kind, text = _branches(file)[line][number]
    match kind:
        case "If":
            return text
        case "Elif":
            return f"otherwise, {text}"
        case "Case":
            return f"{_switched(file, line)} = {text}"
    return "otherwise"


@cache
def _branches(file: str) -> dict[int, list[tuple[str, str]]]:
    """The branches of a file, by their line: `If`, `Case`, ..., and the arguments."""
    found: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for _, call in _calls(file):
        if isinstance(call.func, ast.Attribute) and call.func.attr in BRANCHES:
            found[call.lineno].append((call.func.attr, ", ".join(map(ast.unparse, call.args))))
    return found


def _calls(file: str) -> Iterator[tuple[ast.With, ast.Call]]:
    """The calls that `with` statements enter; one statement may have several."""
    for node in ast.walk(ast.parse(Path(file).read_text())):
        if isinstance(node, ast.With):
            for item in node.items:
                if isinstance(item.context_expr, ast.Call):
                    yield node, item.context_expr


def _switched(file: str, line: int) -> str:
    """What the `Switch` around a `Case` looks at."""
    around = [
        call
        for node, call in _calls(file)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "Switch"
        and node.lineno < line <= (node.end_lineno or 0)
    ]
    return ast.unparse(max(around, key=lambda call: call.lineno).args[0])


def page() -> str:
    """The page of the machines that are not small."""
    large = [machine for machine in machines() if len(machine.states) > SMALL]
    index = [f"* [{_title(machine)}](#{_title(machine).lower()})\n" for machine in large]
    return "\n".join([_INTRODUCTION + "".join(index), *map(_section, large)])


def _title(machine: Machine) -> str:
    return machine.block.rpartition(".")[2]


def _section(machine: Machine) -> str:
    module = machine.block.rpartition(".")[0]
    file = f"gateware/{module.replace('.', '/')}.py"
    numbers = {state: f"s{number}" for number, state in enumerate(machine.states)}
    arrows = dict.fromkeys((step.before, step.after) for step in machine.steps)
    lines = [
        f"## {_title(machine)}",
        "",
        f"[{file}](../{file}), {len(machine.states)} states.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        *(f'    state "{state}" as {number}' for state, number in numbers.items()),
        f"    [*] --> {numbers[machine.first]}",
        *(f"    {numbers[before]} --> {numbers[after]}" for before, after in arrows),
        "```",
        "",
        "| from | to | when |",
        "| --- | --- | --- |",
    ]
    for step in machine.steps:
        when = "; ".join(map(_quoted, step.conditions))
        lines.append(f"| {step.before} | {step.after} | {when or 'always'} |")
    return "\n".join(lines) + "\n"


def _quoted(condition: str) -> str:
    """A condition for a cell of a table: what comes from the source is set as code."""
    word, comma, text = condition.rpartition("otherwise, ")
    if text == "otherwise":
        return text
    return f"{word}{comma}`{text}`".replace("|", "\\|")


def main() -> int | str:
    """Write the page; returns the exit status, or why nothing was written."""
    argparse.ArgumentParser(prog="make states", description="Write docs/states.md.").parse_args()
    if not PAGE.parent.is_dir():
        return f"{PAGE.parent} is missing: `make states` needs the project's repository"
    PAGE.write_text(page())
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
