"""Which case gives which figure.

The name of a figure says what it is: operation, direction, EMSS or bytes of a message, unit. At
an EMSS all FPDUs are full, but for Reads of 4,096 bytes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench import many_qps
from bench.many_qps import NOT_SLOW, OTHERS, SLOW
from stagecoach.sim.model.ddp import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS
from stagecoach.sim.model.fpdu_sizes import mulpdu

DEFAULTS: dict[str, Any] = {
    "emss": 1460,
    "qps": 1,
    "markers": False,
    "read_latency": 250,
    "llp_latency": 4,
    "in_a_row": 1,
    "srq": False,
    "slow": None,
    "messages": 1250,
}
"""`messages`: more than `STEADY_MESSAGES` are left without the beginning and the end.

`in_a_row`: FPDUs of a QP that arrive one after the other. `srq`: the QPs take their receive entries
from an SRQ. `slow`: what is wrong with one more QP,
beside `qps`; a key of `many_qps.SLOW`, or `NOT_SLOW`.
"""

STEADY_MESSAGES = 1000
"""At least so many are in the steady state of a figure."""

FPDUS_PER_MESSAGE = {1460: 4, 8960: 1}
"""Full FPDUs of a message, by the EMSS: 6 to 9 thousand bytes."""

MANY_QPS_MESSAGES = 1280
"""Messages of 64 QPs: 20 of each."""

LEAST_MESSAGES = 12
"""Of each QP; the queue entries of two may be on chip before the first one."""

FPDUS_AHEAD = 64
"""FPDUs at hand that arrive at several QPs, in all."""

LATENCY_MESSAGES = STEADY_MESSAGES

NFS_OCTETS = 1 << 20
"""Of an NFS READ whose rate is measured; the server answers it by RDMA Writes."""

NFS_OPERATIONS = 3
"""Of a READ: Send, RDMA Write, Send; of a WRITE: Send, RDMA Read, Send (RFC 5667, 4)."""


@dataclass(frozen=True)
class Case:
    """A cocotb test of one device: module of `bench`, name, what differs from `DEFAULTS`."""

    module: str
    check: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """All options."""
        return DEFAULTS | dict(self.changes)

    @property
    def identity(self) -> str:
        """The same for two cases that are the same run."""
        return repr((self.module, self.check, sorted(self.options.items())))


@dataclass(frozen=True)
class Figure:
    """A figure: the case that is run, and how it comes out of the result."""

    case: Case
    value: Callable[[Mapping[str, int]], float]


def octets_per_cycle(result: Mapping[str, int]) -> float:
    """Payload bytes per cycle."""
    return round(result["octets"] / result["cycles"], 3)


def cycles_per_message(result: Mapping[str, int]) -> float:
    """Cycles per message."""
    return round(result["cycles"] / result["messages"], 2)


def cycles(result: Mapping[str, int]) -> float:
    """The longest of all latencies."""
    return result["cycles"]


def last_cycles(result: Mapping[str, int]) -> float:
    """The longest of all latencies up to the last byte."""
    return result["last_cycles"]


def header_octets(operation: str) -> int:
    """A `send` has untagged segments, all others tagged ones (RFC 5041, 4.2 and 4.3)."""
    return UNTAGGED_HEADER_OCTETS if operation == "send" else TAGGED_HEADER_OCTETS


def full_segment(operation: str, emss: int = 1460, markers: bool = False) -> int:
    """Payload of a full FPDU."""
    return mulpdu(emss, markers) - header_octets(operation)


def message(operation: str, emss: int = 1460, markers: bool = False) -> int:
    """Bytes of a message at an EMSS."""
    return full_segment(operation, emss, markers) * FPDUS_PER_MESSAGE[emss]


def messages_of(qps: int) -> int:
    """Messages of a case with so many QPs."""
    return max(DEFAULTS["messages"], LEAST_MESSAGES * qps)


def transmit(operation: str, **changes: Any) -> Case:
    """Messages that leave."""
    if operation == "read":
        options = {"after_write": False, **changes}
        return Case("read_cases", "check_answer_reads", options)
    return Case("transmit_cases", "check_transmit", {"operation": operation, **changes})


def receive(operation: str, **changes: Any) -> Case:
    """Messages that arrive; Read Responses are those to Reads of the device."""
    if operation == "read":
        return Case("read_cases", "check_ask_reads", changes)
    if changes["octets"] == 0 and operation == "write":
        return Case("receive_cases", "check_receive_empty", changes)
    return Case("receive_cases", "check_receive", {"operation": operation, **changes})


def _throughput() -> dict[str, Figure]:
    directions = (("tx", transmit), ("rx", receive))
    cases: dict[str, Case] = {}
    for markers in (False, True):
        size = "1460_markers" if markers else "1460"
        for operation, name in (("write", "write"), ("read", "read_response"), ("send", "send")):
            octets = message(operation, markers=markers)
            for direction, make in directions:
                cases[f"{name}_{direction}_{size}"] = make(
                    operation, octets=octets, markers=markers
                )
    octets = message("write")
    for direction, make in directions:
        cases[f"write_{direction}_8960"] = make("write", emss=8960, octets=message("write", 8960))
        cases[f"qps_64_write_{direction}_1460"] = make(
            "write", octets=octets, qps=64, messages=MANY_QPS_MESSAGES
        )
    cases["duplex_1460"] = Case("duplex_cases", "check_duplex", {"octets": octets})
    for name, after_write in (("read", False), ("read_after_write", True)):
        cases[f"{name}_tx_1460"] = transmit("read", octets=4096, after_write=after_write)
    return {
        f"{name}_payload_octets_per_cycle": Figure(case, octets_per_cycle)
        for name, case in cases.items()
    }


def _messages() -> dict[str, Figure]:
    cases = {
        "write_0_tx": transmit("write", octets=0),
        "write_0_rx": receive("write", octets=0),
        "write_64_tx": transmit("write", octets=64),
        "write_64_rx": receive("write", octets=64),
        "send_8_tx": transmit("send", octets=8),
        "send_8_rx": receive("send", octets=8),
        "read_8_responder": transmit("read", octets=8, qps=16),
    }
    return {
        f"{name}_cycles_per_message": Figure(case, cycles_per_message)
        for name, case in cases.items()
    }


def _latencies() -> dict[str, Figure]:
    checks = {
        "rx_last_octet_to_first_write": ("check_first_write", full_segment("write")),
        "rx_last_write_response_to_cqe_write": (
            "check_completion_write",
            full_segment("send"),
        ),
        "doorbell_to_first_fpdu_octet": ("check_doorbell", 64),
    }
    figures = {
        f"latency_{name}_cycles": Figure(
            Case("latency_cases", check, {"octets": octets, "messages": LATENCY_MESSAGES}), cycles
        )
        for name, (check, octets) in checks.items()
    }
    doorbell = figures["latency_doorbell_to_first_fpdu_octet_cycles"].case
    figures["latency_doorbell_to_last_fpdu_octet_cycles"] = Figure(doorbell, last_cycles)
    return figures


def _atomics() -> dict[str, Figure]:
    changes = {"qps": 64, "octets": 8, "messages": 1400}
    return {
        "atomic_responder_cycles_per_op": Figure(
            Case("atomic_cases", "check_atomic_responder", changes), cycles_per_message
        ),
        "atomic_responder_one_address_cycles_per_op": Figure(
            Case("atomic_cases", "check_atomic_same_address", changes), cycles_per_message
        ),
    }


def _of_pattern(pattern: many_qps.Pattern, qps: int, **changes: Any) -> Case:
    make = transmit if pattern.direction == "tx" else receive
    messages = messages_of(qps)
    return make(pattern.operation, octets=pattern.octets, qps=qps, messages=messages, **changes)


def _many_qps() -> dict[str, Figure]:
    cases = {
        many_qps.figure_key(pattern, qps, condition): _of_pattern(pattern, qps, **condition.changes)
        for pattern, qps, condition in many_qps.grid()
    }
    runs = _of_pattern(many_qps.RUN_PATTERN, many_qps.RUN_QPS, in_a_row=many_qps.RUN)
    for key in many_qps.RUNS:
        srq = key == many_qps.RUN_SRQ_KEY
        cases[key] = _with(runs, {"messages": MANY_QPS_MESSAGES, "srq": srq})
    return {key: Figure(case, cycles_per_message) for key, case in cases.items()}


def _large_writes() -> dict[str, Figure]:
    """RDMA Writes that an LLP with a latency hands over."""
    return {
        f"{key}{condition.suffix}": replace(figure, case=_with(figure.case, condition.changes))
        for condition in many_qps.LLP_CONDITIONS
        for key, figure in _throughput().items()
        if key in LARGE_WRITES
    }


def _with(case: Case, changes: Mapping[str, Any]) -> Case:
    return replace(case, changes={**case.changes, **changes})


def _beside_a_slow_qp() -> dict[str, Figure]:
    patterns = {pattern.key: pattern for pattern in many_qps.PATTERNS}
    return {
        many_qps.slow_key(key, slow): Figure(
            _of_pattern(patterns[key], OTHERS, slow=slow), cycles_per_message
        )
        for kind, (_, keys) in SLOW.items()
        for key in keys
        for slow in (NOT_SLOW, kind)
    }


LARGE_WRITES = (
    "write_rx_1460_payload_octets_per_cycle",
    "qps_64_write_rx_1460_payload_octets_per_cycle",
)
"""Whose rate must not depend on the latency of the LLP."""

FIGURES = {
    **_throughput(),
    **_messages(),
    **_latencies(),
    **_atomics(),
    **_many_qps(),
    **_large_writes(),
    **_beside_a_slow_qp(),
}
"""Figures of cases, by their keys in `build/bench.json`."""

RATIOS = {
    f"qps_64_write_{direction}_1460_ratio_to_one_qp": (
        f"qps_64_write_{direction}_1460_payload_octets_per_cycle",
        f"write_{direction}_1460_payload_octets_per_cycle",
    )
    for direction in ("tx", "rx")
} | {
    many_qps.slow_ratio_key(key, kind): (
        many_qps.slow_key(key, kind),
        many_qps.slow_key(key, NOT_SLOW),
    )
    for kind, (_, keys) in SLOW.items()
    for key in keys
}
"""Figures that are one figure over another."""
