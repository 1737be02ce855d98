"""What is printed about figures."""

import sys
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from bench.required import REQUIRED, Requirement


def show(figures: Mapping[str, float], floors: Mapping[str, Requirement]) -> None:
    """Prints the table of figures; a floor that is not the requirement stands beside it."""
    table = Table(
        title="One device: read latency 250 cycles, write response 50, unless a key says more"
    )
    for column in ("figure", "value", "required", "limit", "wire", "verdict"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for key, value in figures.items():
        requirement = REQUIRED.get(key)
        if requirement is None:
            table.add_row(key, f"{value:,}")
            continue
        verdict = requirement.verdict(value)
        floor = floors[key]
        if not requirement.met(value) and floor != requirement:
            verdict += f", reached {floor.value:g}" if floor.met(value) else f", not even {floor}"
        elif floor != requirement:
            verdict += ": its entry in floors.toml can go"
        limit, wire = requirement.limit_text, requirement.wire_text
        table.add_row(key, f"{value:,}", str(requirement), limit, wire, verdict)
    Console(width=140).print(table)


def complain(
    figures: Mapping[str, float], floors: Mapping[str, Requirement], failed: Mapping[str, str]
) -> bool:
    """Prints what is below its floor or beyond its limit, and why figures are missing.

    Returns whether there is any of it.
    """
    missed = [key for key in figures if key in floors and not floors[key].met(figures[key])]
    for key in missed:
        print(f"bench: {key} is {figures[key]:g}; required: {floors[key]}", file=sys.stderr)
    wrong = [key for key in figures if key in REQUIRED and not REQUIRED[key].within(figures[key])]
    for key in wrong:
        limit = REQUIRED[key].limit_text
        print(f"bench: {key} is {figures[key]:g}; the protocol allows {limit}", file=sys.stderr)
    for key, reason in failed.items():
        print(f"bench: {key}: {reason}", file=sys.stderr)
    return bool(missed or wrong or failed)
