"""The figures over the number of QPs: which patterns there are, and under which conditions.

Small messages of all QPs by turns are what storage and key-value servers have. A key is
`{pattern}_qps_{number}_cycles_per_message` and the suffix of the condition.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

QPS = (1, 4, 16, 64, 256)

MANY = 16
"""From so many QPs on a read latency of 1,000 cycles is to be hidden."""


@dataclass(frozen=True)
class Pattern:
    """Messages of one kind that a device has with all its QPs by turns.

    key, label: its names. operation: `write`, `send` or `read`. direction: in which the payload
    goes, `tx` or `rx`. octets: payload of a message.
    """

    key: str
    label: str
    operation: str
    direction: str
    octets: int


PATTERNS = (
    Pattern("write_64_rx", "RDMA Write of 64 bytes, received", "write", "rx", 64),
    Pattern("send_8_rx", "Send of 8 bytes, received", "send", "rx", 8),
    Pattern("read_8_responder", "Read of 8 bytes, answered", "read", "tx", 8),
    Pattern("read_8_requester", "Read of 8 bytes, requested", "read", "rx", 8),
    Pattern("send_8_tx", "Send of 8 bytes, sent", "send", "tx", 8),
    Pattern("write_64_tx", "RDMA Write of 64 bytes, sent", "write", "tx", 64),
)


@dataclass(frozen=True)
class Condition:
    """What differs from a case with the latencies that all figures have.

    suffix: of the keys. label: as it stands in a heading. changes: of the options of a case. qps:
    numbers of QPs for which it is measured.
    """

    suffix: str
    label: str
    changes: Mapping[str, int] = field(default_factory=dict)
    qps: tuple[int, ...] = QPS

    def applies(self, pattern: Pattern) -> bool:
        """Whether the condition can change anything: received bytes have a latency, sent none."""
        return "llp_latency" not in self.changes or receives(pattern)


def receives(pattern: Pattern) -> bool:
    """Whether FPDUs arrive at the device; for a Read in either direction they do."""
    return pattern.operation == "read" or pattern.direction == "rx"


LLP_LATENCIES = (100, 320)

USUAL = Condition("", "usual latencies")
LLP_CONDITIONS = tuple(
    Condition(f"_llp_{latency}", f"LLP latency {latency} cycles", {"llp_latency": latency})
    for latency in LLP_LATENCIES
)
SLOW_MEMORY = Condition(
    "_latency_1000",
    "read latency 1,000 cycles",
    {"read_latency": 1000},
    tuple(count for count in QPS if count >= MANY),
)
CONDITIONS = (USUAL, *LLP_CONDITIONS, SLOW_MEMORY)


def figure_key(pattern: Pattern, qps: int, condition: Condition = USUAL) -> str:
    """The key of a figure."""
    return f"{pattern.key}_qps_{qps}_cycles_per_message{condition.suffix}"


def grid() -> Iterable[tuple[Pattern, int, Condition]]:
    """All figures of patterns: by condition, pattern, number of QPs."""
    for condition in CONDITIONS:
        for pattern in PATTERNS:
            if condition.applies(pattern):
                for qps in condition.qps:
                    yield pattern, qps, condition


RUN = 8
RUN_QPS = 16
RUN_PATTERN = PATTERNS[1]
RUN_KEY = f"{RUN_PATTERN.key}_qps_{RUN_QPS}_runs_of_{RUN}_cycles_per_message"
"""Each of `RUN_QPS` QPs gets `RUN` messages in a row, in random order of the QPs."""

RUN_SRQ_KEY = f"{RUN_PATTERN.key}_qps_{RUN_QPS}_runs_of_{RUN}_srq_cycles_per_message"
"""The same, when all QPs take from one SRQ."""

RUNS = {RUN_KEY: "receive queues", RUN_SRQ_KEY: "an SRQ"}
"""Where the entries of these messages are from, in words."""

OTHERS = 63
"""QPs beside a slow one."""

NOT_SLOW = "idle"
"""What is compared with: the QP beside the others is connected and has nothing to do."""

SLOW = {
    "receive_queue_empty": ("its receive queue is empty", ("send_8_rx",)),
    "fpdu_incomplete": ("its FPDU is never completed", ("write_64_rx", "send_8_rx")),
    "window_shut": ("its LLP window is shut", ("send_8_tx", "read_8_responder")),
    "receive_entries_late": ("its receive entries come 1,000 cycles late", ("send_8_rx",)),
}
"""By the name of what makes a QP slow: the words for it, the patterns of the others."""


def slow_key(pattern: str, slow: str) -> str:
    """The key of what a message costs the others."""
    return f"{pattern}_qps_{OTHERS}_beside_{slow}_cycles_per_message"


def slow_ratio_key(pattern: str, slow: str) -> str:
    """The key of what it costs over what it costs beside an idle QP."""
    return f"{pattern}_qps_{OTHERS}_beside_{slow}_ratio_to_{NOT_SLOW}"
