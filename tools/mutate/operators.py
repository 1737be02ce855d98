"""Changes of statements that Amaranth writes as calls, in the form of cosmic-ray's operators."""

from collections.abc import Iterator
from typing import Any

import parso
from cosmic_ray.operators.operator import Example, Operator

Position = tuple[tuple[int, int], tuple[int, int]]


def _called(node: Any) -> str:
    """The method that an expression calls last: `eq` for `a.b[0].eq(c)`, else nothing."""
    if node.type not in ("atom_expr", "power") or len(node.children) < 3:
        return ""
    name, call = node.children[-2:]
    if name.type != "trailer" or call.type != "trailer" or call.children[0].value != "(":
        return ""
    return name.children[1].value if name.children[0].value == "." else ""


def _instead(node: Any, code: str) -> Any:
    """`code` with the white space that stands before `node`."""
    return parso.parse(node.get_first_leaf().prefix + code)


class NegateCondition(Operator):
    """`m.If(a)` becomes `m.If((a) == 0)`; cosmic-ray's AddNot does this to Python's `if`."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if _called(node) in ("If", "Elif") and len(node.children[-1].children) == 3:
            condition = node.children[-1].children[1]
            yield condition.start_pos, condition.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        call = node.children[-1]
        condition = call.children[1]
        code = condition.get_code(include_prefix=False)
        call.children[1] = _instead(condition, f"({code}) == 0")
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("with m.If(a): pass", "with m.If((a) == 0): pass"),)


class DropAssignment(Operator):
    """`a.eq(b)` becomes `[]`, which is no statement."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if _called(node) == "eq":
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        return _instead(node, "[]")

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("m.d.sync += a.eq(b)", "m.d.sync += []"),)


class InvertValue(Operator):
    """`a.eq(b)` becomes `a.eq(~(b))`."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if _called(node) == "eq" and len(node.children[-1].children) == 3:
            value = node.children[-1].children[1]
            yield value.start_pos, value.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        call = node.children[-1]
        value = call.children[1]
        call.children[1] = _instead(value, f"~({value.get_code(include_prefix=False)})")
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("m.d.sync += a.eq(b)", "m.d.sync += a.eq(~(b))"),)


class StayInState(Operator):
    """`m.next = "STATE"` becomes `pass`."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if node.type == "expr_stmt" and node.children[0].get_code().strip() == "m.next":
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        return _instead(node, "pass")

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example('m.next = "IDLE"', "pass"),)


OURS: tuple[type[Operator], ...] = (
    NegateCondition,
    DropAssignment,
    InvertValue,
    StayInState,
)
