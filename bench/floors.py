"""What the short benchmark holds the device to: `make bench-short`.

A figure that meets its requirement must go on doing so. For one that does not yet, `floors.toml`
says what was reached: it must not get worse.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.catalogue import Case
from bench.required import REQUIRED, Requirement

FLOORS = Path(__file__).with_name("floors.toml")

SHORT_KEYS = (
    "write_tx_1460_payload_octets_per_cycle",
    "write_rx_1460_payload_octets_per_cycle",
    "read_response_tx_1460_payload_octets_per_cycle",
    "read_response_rx_1460_payload_octets_per_cycle",
    "send_tx_1460_payload_octets_per_cycle",
    "send_rx_1460_payload_octets_per_cycle",
    "write_0_rx_cycles_per_message",
    "write_64_tx_cycles_per_message",
    "write_64_rx_cycles_per_message",
    "send_8_tx_cycles_per_message",
    "send_8_rx_cycles_per_message",
    "read_8_responder_cycles_per_message",
    "atomic_responder_cycles_per_op",
    "latency_rx_last_octet_to_first_write_cycles",
    "latency_rx_last_write_response_to_cqe_write_cycles",
    "latency_doorbell_to_first_fpdu_octet_cycles",
    "qps_64_write_rx_1460_ratio_to_one_qp",
)
"""One figure of each operation and direction, with small and with large messages."""


MANY_QPS = 64
"""So many QPs need all messages of a case to come to a steady state."""


def shortened(case: Case) -> Case:
    """A case with a quarter of the octets of long messages, a fifth of the number of short ones."""
    options = case.options
    if options["qps"] >= MANY_QPS:
        return case
    if options["octets"] > options["emss"]:
        changes = {"octets": options["octets"] // 4}
    else:
        changes = {"messages": options["messages"] // 5}
    return replace(case, changes={**case.changes, **changes})


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
