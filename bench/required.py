"""The figures that are required of the device: one table.

A limit is what the protocol and 64 bits per cycle leave (`bench/limits.py`); it is there to be
compared with.
"""

from dataclasses import dataclass
from enum import Enum

from bench import many_qps, tcp
from bench.catalogue import DEFAULTS, LARGE_WRITES, NFS_OCTETS, NFS_OPERATIONS
from bench.limits import (
    beats,
    octets_per_cycle,
    port_cycles,
    wire_cycles,
)
from stagecoach.sim.model.atomics import ATOMIC_RESPONSE_OCTETS

WINDOW = 0.001
"""By which a figure may be above a limit, an average over all messages: it is of some of them."""


class Sense(Enum):
    """On which side of a required value a figure has to be."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True)
class Requirement:
    """A required value of a figure, its limit if there is one, and what 10 Gb/s Ethernet allows."""

    sense: Sense
    value: float
    limit: float | None = None
    wire: float | None = None

    def within(self, figure: float) -> bool:
        """Whether a figure is no better than the limit."""
        if self.limit is None:
            return True
        if self.sense is Sense.AT_LEAST:
            return figure <= self.limit * (1 + WINDOW)
        return figure >= self.limit * (1 - WINDOW)

    @property
    def limit_text(self) -> str:
        """The limit as it is printed."""
        return "" if self.limit is None else f"{self.limit:g}"

    @property
    def wire_text(self) -> str:
        """What Ethernet allows, as it is printed."""
        return "" if self.wire is None else f"{self.wire:g}"

    def verdict(self, figure: float) -> str:
        """`met` or `not met`."""
        return "met" if self.met(figure) else "not met"

    def met(self, figure: float) -> bool:
        """Whether a figure is on the right side of the value, or equal."""
        if self.sense is Sense.AT_LEAST:
            return figure >= self.value
        return figure <= self.value

    def __str__(self) -> str:
        return f"{self.sense.value} {self.value:g}"


def _least(value: float, limit: float | None = None) -> Requirement:
    return Requirement(Sense.AT_LEAST, value, limit)


def _most(value: float, limit: float | None = None, wire: float | None = None) -> Requirement:
    return Requirement(Sense.AT_MOST, value, limit, wire)


MOST_CYCLES = {
    "write_64_rx": 12.5,
    "send_8_rx": 12.5,
    "read_8_responder": 12.5,
    "read_8_requester": 14,
    "send_8_tx": 12.5,
    "write_64_tx": 16.5,
}
"""Of a message of a pattern, whatever the number of QPs and the latency of the LLP."""

MOST_CYCLES_SLOW_MEMORY = 20
"""Of any of them, when host memory answers reads after 1,000 cycles."""

MOST_BESIDE_SLOW = 1.05
"""Cycles of a message of 63 QPs, over those beside a QP that is idle."""


def _many_qps() -> dict[str, Requirement]:
    required = {}
    for pattern, qps, condition in many_qps.grid():
        slow_memory = condition is many_qps.SLOW_MEMORY
        value = MOST_CYCLES_SLOW_MEMORY if slow_memory else MOST_CYCLES[pattern.key]
        required[many_qps.figure_key(pattern, qps, condition)] = _most(
            value, port_cycles(pattern), wire_cycles(pattern)
        )
    for key in many_qps.RUNS:
        required[key] = required[many_qps.figure_key(many_qps.RUN_PATTERN, many_qps.RUN_QPS)]
    for condition in many_qps.LLP_CONDITIONS:
        for key in LARGE_WRITES:
            required[f"{key}{condition.suffix}"] = _least(7.7, octets_per_cycle("write"))
    for kind, (_, patterns) in many_qps.SLOW.items():
        for name in patterns:
            required[many_qps.slow_ratio_key(name, kind)] = _most(MOST_BESIDE_SLOW)
    return required


MANY_QPS = _many_qps()
"""What is required with any number of QPs, with slow neighbours and latencies."""

REQUIRED = {
    "write_tx_1460_payload_octets_per_cycle": _least(7.7, octets_per_cycle("write")),
    "write_rx_1460_payload_octets_per_cycle": _least(7.7, octets_per_cycle("write")),
    "read_tx_1460_payload_octets_per_cycle": _least(7.0, octets_per_cycle("read", 4096)),
    "read_response_tx_1460_payload_octets_per_cycle": _least(7.6, octets_per_cycle("read")),
    "read_response_rx_1460_payload_octets_per_cycle": _least(7.6, octets_per_cycle("read")),
    "send_tx_1460_payload_octets_per_cycle": _least(7.6, octets_per_cycle("send")),
    "send_rx_1460_payload_octets_per_cycle": _least(7.6, octets_per_cycle("send")),
    "duplex_1460_payload_octets_per_cycle": _least(14.8, 2 * octets_per_cycle("write")),
    "write_tx_8960_payload_octets_per_cycle": _least(7.9, octets_per_cycle("write", emss=8960)),
    "write_rx_8960_payload_octets_per_cycle": _least(7.9, octets_per_cycle("write", emss=8960)),
    **{
        f"{name}_{direction}_1460_markers_payload_octets_per_cycle": _least(
            7.55, octets_per_cycle(operation, markers=True)
        )
        for name, operation in (("write", "write"), ("read_response", "read"), ("send", "send"))
        for direction in ("tx", "rx")
    },
    "write_0_tx_cycles_per_message": _most(12, beats("write", 0)),
    "write_0_rx_cycles_per_message": _most(12, beats("write", 0)),
    "write_64_rx_cycles_per_message": _most(12, beats("write", 64)),
    "send_8_rx_cycles_per_message": _most(12, beats("send", 8)),
    "send_8_tx_cycles_per_message": _most(13, beats("send", 8)),
    "write_64_tx_cycles_per_message": _most(20, beats("write", 64)),
    "read_8_responder_cycles_per_message": _most(12, beats("read", 8)),
    "latency_rx_last_octet_to_first_write_cycles": _most(25),
    "latency_rx_last_write_response_to_cqe_write_cycles": _most(10),
    "latency_doorbell_to_first_fpdu_octet_cycles": _most(540, DEFAULTS["read_latency"]),
    "qps_64_write_tx_1460_ratio_to_one_qp": _least(0.95, 1),
    "qps_64_write_rx_1460_ratio_to_one_qp": _least(0.95, 1),
    "atomic_responder_cycles_per_op": _most(20, beats("send", ATOMIC_RESPONSE_OCTETS)),
    "atomic_responder_one_address_cycles_per_op": _most(36, beats("send", ATOMIC_RESPONSE_OCTETS)),
    "nfs_read_1m_payload_octets_per_cycle": _least(6.5, octets_per_cycle("write", NFS_OCTETS)),
    "nfs_read_rdma_operations": _most(3, NFS_OPERATIONS),
    "nfs_write_rdma_operations": _most(3, NFS_OPERATIONS),
    tcp.TX_KEY: _least(7.2),
    tcp.RX_KEY: _least(7.2),
    tcp.LONG_KEY: _least(7.7),
    tcp.DUPLEX_KEY: _least(14),
    tcp.QPS_KEY: _least(0.95, 1),
    tcp.FAIR_KEY: _least(0.9, 1),
    "sim_cycles_per_second": _least(500_000),
    "sim_cycles_per_second_ratio": _least(50),
    "sim_idle_cpu_us_per_s": _most(200),
    **MANY_QPS,
}
"""Every figure of which something is required."""
