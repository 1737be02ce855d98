"""Which single changes of the gateware there are, and a random sequence of them."""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

from tools.mutate.operators import OURS

SKIPPED = (
    # Never hardware: Amaranth has no such operations.
    "_Div",
    "_Pow",
    "_Is",
    "_IsNot",
    "_Not",
    # Decorators and exceptions are Python's matter; variables are replaced by random numbers that
    # no seed governs.
    "RemoveDecorator",
    "ExceptionReplacer",
    "VariableReplacer",
    "VariableInserter",
)
"""Ends of names of cosmic-ray's operators that are not used."""

NOT_CHANGED = frozenset(
    ("annassign", "tfpdef", "decorator", "import_from", "import_name", "raise_stmt", "assert_stmt")
)
"""Kinds of syntax in which nothing is changed: annotations, and what is not hardware."""


@dataclass(frozen=True)
class Change:
    """A single change of one file.

    file: from the root of the project. line: counted from 1. before, after: this line, stripped;
    `after` is what is in its place. text: the whole file with the change.
    """

    file: str
    line: int
    operator: str
    before: str
    after: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}: {self.before} -> {self.after}"


def _operators() -> dict[str, Operator]:
    names = [name for name in operator_names() if not name.endswith(SKIPPED)]
    used = [get_operator(name) for name in names] + list(OURS)
    return {operator.__name__: operator() for operator in used}


OPERATORS = _operators()

# A place in a file: line, column; and what may be done there: an operator, which of its occurrences
Place = tuple[int, int]
What = tuple[str, int]


def _is_changed(node: Any) -> bool:
    child, parent = node, node.parent
    while parent is not None:
        if parent.type in NOT_CHANGED or parent.type.startswith("fstring"):
            return False
        if parent.type == "funcdef" and child is parent.annotation:
            return False
        child, parent = parent, parent.parent
    return node.type not in NOT_CHANGED


def places(source: str) -> dict[Place, list[What]]:
    """Where a file can be changed, and how."""
    found: dict[Place, list[What]] = defaultdict(list)
    count: dict[str, int] = defaultdict(int)
    for node in ast_nodes(get_ast(source)):
        changed = None
        for name, operator in OPERATORS.items():
            for start, _ in operator.mutation_positions(node):
                if changed is None:
                    changed = _is_changed(node)
                if changed:
                    found[start].append((name, count[name]))
                count[name] += 1
    return dict(found)


def change(file: str, source: str, what: What) -> Change:
    """The change `what` of a file with this text."""
    operator, occurrence = what
    text = mutate_code(source, OPERATORS[operator], occurrence)
    if text is None:
        raise ValueError(f"{file} has no occurrence {occurrence} of {operator}")
    old, new = source.splitlines(), text.splitlines()
    first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    # The lines below the change are equal, counted from the end.
    behind = 0
    while behind < min(len(old), len(new)) - first - 1 and old[-1 - behind] == new[-1 - behind]:
        behind += 1
    before, after = (
        " ".join(line.strip() for line in lines[first : len(lines) - behind])
        for lines in (old, new)
    )
    return Change(file, first + 1, operator, before, after, text)


def gateware_files(root: Path) -> list[str]:
    """The files that are changed, from the root of the project."""
    return sorted(str(path.relative_to(root)) for path in (root / "gateware").rglob("*.py"))


def draw(root: Path, seed: int) -> Iterator[Change]:
    """Changes in the order of a random sequence, each once.

    Each line of code on which something can be changed is drawn with the same chance, then one of
    its places, then one of the changes there.
    """
    rng = random.Random(seed)
    sources = {file: (root / file).read_text() for file in gateware_files(root)}
    lines: dict[tuple[str, int], dict[Place, list[What]]] = defaultdict(dict)
    for file, source in sources.items():
        for place, choices in places(source).items():
            lines[file, place[0]][place] = choices
    keys = sorted(lines)
    while keys:
        at = rng.randrange(len(keys))
        file, line = keys[at]
        there = lines[file, line]
        place = rng.choice(sorted(there))
        what = there[place].pop(rng.randrange(len(there[place])))
        if not there[place]:
            del there[place]
        if not there:
            keys.pop(at)
        yield change(file, sources[file], what)
