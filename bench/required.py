"""The figures that are required of the device: one table.

A limit is what the protocol and 64 bits per cycle leave; it is there to be compared with.
"""

from dataclasses import dataclass
from enum import Enum


class Sense(Enum):
    """On which side of a required value a figure has to be."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True)
class Requirement:
    """A required value of a figure, and its limit if there is one."""

    sense: Sense
    value: float
    limit: str = ""

    def met(self, figure: float) -> bool:
        """Whether a figure is on the right side of the value, or equal."""
        if self.sense is Sense.AT_LEAST:
            return figure >= self.value
        return figure <= self.value

    def __str__(self) -> str:
        return f"{self.sense.value} {self.value:g}"


def _least(value: float, limit: str = "") -> Requirement:
    return Requirement(Sense.AT_LEAST, value, limit)


def _most(value: float, limit: str = "") -> Requirement:
    return Requirement(Sense.AT_MOST, value, limit)


REQUIRED = {
    "write_tx_1460_payload_octets_per_cycle": _least(7.7, "7.86"),
    "write_rx_1460_payload_octets_per_cycle": _least(7.7, "7.86"),
    "read_tx_1460_payload_octets_per_cycle": _least(7.0, "7.8"),
    "read_response_tx_1460_payload_octets_per_cycle": _least(7.6, "7.8"),
    "read_response_rx_1460_payload_octets_per_cycle": _least(7.6, "7.8"),
    "send_tx_1460_payload_octets_per_cycle": _least(7.6, "7.8"),
    "send_rx_1460_payload_octets_per_cycle": _least(7.6, "7.8"),
    "duplex_1460_payload_octets_per_cycle": _least(14.8, "15.7"),
    "write_tx_8960_payload_octets_per_cycle": _least(7.9, "7.98"),
    "write_rx_8960_payload_octets_per_cycle": _least(7.9, "7.98"),
    "write_tx_1460_markers_payload_octets_per_cycle": _least(7.55, "7.8"),
    "write_rx_1460_markers_payload_octets_per_cycle": _least(7.55, "7.8"),
    "read_response_tx_1460_markers_payload_octets_per_cycle": _least(7.55, "7.8"),
    "read_response_rx_1460_markers_payload_octets_per_cycle": _least(7.55, "7.8"),
    "send_tx_1460_markers_payload_octets_per_cycle": _least(7.55, "7.8"),
    "send_rx_1460_markers_payload_octets_per_cycle": _least(7.55, "7.8"),
    "write_0_tx_cycles_per_message": _most(12, "3 to 11"),
    "write_0_rx_cycles_per_message": _most(12, "3 to 11"),
    "write_64_rx_cycles_per_message": _most(12, "3 to 11"),
    "send_8_rx_cycles_per_message": _most(12, "3 to 11"),
    "send_8_tx_cycles_per_message": _most(13),
    "write_64_tx_cycles_per_message": _most(20),
    "read_8_responder_cycles_per_message": _most(12),
    "latency_rx_last_octet_to_first_write_cycles": _most(25),
    "latency_rx_last_write_response_to_cqe_write_cycles": _most(10),
    "latency_doorbell_to_first_fpdu_octet_cycles": _most(540, "500"),
    "qps_64_write_tx_1460_ratio_to_one_qp": _least(0.95, "1"),
    "qps_64_write_rx_1460_ratio_to_one_qp": _least(0.95, "1"),
    "atomic_responder_cycles_per_op": _most(40),
    "nfs_read_1m_payload_octets_per_cycle": _least(6.5, "7.86"),
    "nfs_read_rdma_operations": _most(3, "3"),
    "nfs_write_rdma_operations": _most(3, "3"),
    "sim_cycles_per_second": _least(500_000),
    "sim_cycles_per_second_ratio": _least(50),
    "sim_idle_cpu_us_per_s": _most(200),
}
