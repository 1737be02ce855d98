"""What the short benchmark holds the device to: `make bench-short`.

A figure that meets its requirement must go on doing so. For one that does not yet, `floors.toml`
says what was reached: it must not get worse.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench import many_qps
from bench.catalogue import FIGURES, RATIOS, Case
from bench.many_qps import PATTERNS
from bench.required import MANY_QPS, REQUIRED, Requirement

FLOORS = Path(__file__).with_name("floors.toml")

SHORT_QPS = 64
SHORT_KEYS = tuple(
    key
    for key in REQUIRED
    if (key in FIGURES or key in RATIOS)
    and (key not in MANY_QPS or key in {many_qps.figure_key(each, SHORT_QPS) for each in PATTERNS})
)
"""Figures that are cycles of one device; neither programs nor the machine take part in them.

Of those over the number of QPs, the ones with `SHORT_QPS`.
"""

SHORT_LATENCY_MESSAGES = 50


def shortened(case: Case) -> Case:
    """A case with a quarter of its messages if they are larger than half of an FPDU.

    Of small ones all are needed, for queue entries are prefetched at the start. Of latencies, where
    each message comes alone, `SHORT_LATENCY_MESSAGES` are left.
    """
    options = case.options
    messages = options["messages"]
    if case.module == "latency_cases":
        messages = SHORT_LATENCY_MESSAGES
    elif 2 * options["octets"] > options["emss"]:
        messages //= 4
    return replace(case, changes={**case.changes, "messages": messages})


def read_floors(text: str) -> dict[str, Requirement]:
    """What must be kept, by key, of a file such as `floors.toml`.

    `ValueError` for a figure without a requirement, for one whose `required` is not that of
    `bench/required.py`, and for one whose `reached` meets it: then the requirement is the floor.
    """
    floors = dict(REQUIRED)
    for key, entry in tomllib.loads(text).items():
        floors[key] = _floor(key, entry)
    return floors


def _floor(key: str, entry: Mapping[str, float]) -> Requirement:
    if key not in REQUIRED:
        raise ValueError(f"floors: nothing is required of {key!r}; allowed: keys of REQUIRED")
    if set(entry) != {"required", "reached"}:
        raise ValueError(f"floors: {key} has {sorted(entry)}; allowed: required and reached")
    requirement = REQUIRED[key]
    if entry["required"] != requirement.value:
        raise ValueError(
            f"floors: {key} has required {entry['required']}; allowed: {requirement.value:g}"
        )
    if requirement.met(entry["reached"]):
        raise ValueError(
            f"floors: {key} has reached {entry['reached']}, which meets {requirement}; "
            "allowed: no entry"
        )
    return replace(requirement, value=entry["reached"])
