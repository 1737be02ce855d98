"""Two hosts and the life of a Write, a Read, a Send and an atomic.

Time goes down; only the order within a column, and along arrows, is meant.
"""

from collections.abc import Sequence

from stagecoach.hw.interface.queue_entries import COMPLETION_ENTRY_OCTETS, SEND_UNIT_OCTETS
from stagecoach.hw.interface.wire import (
    ATOMIC_OCTETS,
    QN_ATOMIC_RESPONSE,
    QN_READ_REQUEST,
    QN_SEND,
)
from tools.figures.svg import HOST, LINE, MEMORY, MUTED, PAPER, QUEUES, Drawing, width_of

COLUMNS = {
    "program A": (70, HOST),
    "memory A": (230, MEMORY),
    "device A": (390, QUEUES),
    "device B": (640, QUEUES),
    "memory B": (800, MEMORY),
    "program B": (960, HOST),
}
_STEP, _TOP, _WIDTH = 38, 64, 1030

Step = tuple[str, str, str]
"""From, to and what; the same column twice is what happens there."""


def _sequence(title: str, steps: Sequence[Step]) -> str:
    d = Drawing(_WIDTH, _TOP + _STEP * len(steps) + 40, title)
    for name, (x, fill) in COLUMNS.items():
        d.box(x - 56, 12, 112, 30, fill, name, size=13)
        d.line((x, 42), (x, d.height - 12), color=LINE)
    for number, (source, target, words) in enumerate(steps):
        y = _TOP + _STEP * number + 24
        start, end = COLUMNS[source][0], COLUMNS[target][0]
        half = width_of(words, 12) / 2 + 8
        if source == target:
            d.rectangle(start - half, y - 13, 2 * half, 22, PAPER, radius=11)
            d.text(start, y + 2, words, 12, MUTED)
            continue
        middle = (start + end) / 2
        d.rectangle(middle - half, y - 20, 2 * half, 16, PAPER, PAPER)
        d.text(middle, y - 8, words, 12)
        d.arrow((start, y), (end, y))
    return d.svg()


_POST: tuple[Step, ...] = (
    ("program A", "memory A", f"entry: {SEND_UNIT_OCTETS} bytes"),
    ("program A", "device A", "doorbell"),
    ("memory A", "device A", "the entry is read"),
)
_COMPLETE: tuple[Step, ...] = (
    ("device A", "memory A", f"completion: {COMPLETION_ENTRY_OCTETS} bytes"),
    ("device A", "program A", "interrupt, if it was asked for"),
)


def write() -> str:
    """An RDMA Write."""
    steps: tuple[Step, ...] = (
        *_POST,
        ("memory A", "device A", "the payload is read"),
        ("device A", "device B", "FPDUs: STag, Tagged Offset, payload"),
        *_COMPLETE,
        ("device B", "device B", "CRC, then STag, rights, bounds"),
        ("device B", "memory B", "the payload"),
        ("program B", "program B", "is told nothing"),
    )
    return _sequence("The life of an RDMA Write", steps)


def read() -> str:
    """An RDMA Read."""
    steps: tuple[Step, ...] = (
        *_POST,
        ("device A", "device B", f"Read Request, queue {QN_READ_REQUEST}"),
        ("device B", "device B", "CRC, then STag, rights, bounds"),
        ("memory B", "device B", "the payload is read"),
        ("device B", "device A", "Read Response: A's STag, payload"),
        ("device A", "device A", "CRC, then A's STag"),
        ("device A", "memory A", "the payload"),
        ("memory A", "device A", "write responses"),
        *_COMPLETE,
        ("program B", "program B", "is told nothing"),
    )
    return _sequence("The life of an RDMA Read", steps)


def send() -> str:
    """A Send, with the receive that it takes."""
    steps: tuple[Step, ...] = (
        ("program B", "memory B", "receive entry"),
        ("program B", "device B", "doorbell"),
        ("memory B", "device B", "the entry is read"),
        *_POST,
        ("memory A", "device A", "the payload is read"),
        ("device A", "device B", f"FPDUs: queue {QN_SEND}, MSN, MO, payload"),
        *_COMPLETE,
        ("device B", "device B", "CRC, then MSN, and room for it"),
        ("device B", "memory B", "the payload"),
        ("memory B", "device B", "write responses"),
        ("device B", "memory B", f"completion: {COMPLETION_ENTRY_OCTETS} bytes"),
        ("device B", "program B", "interrupt, if it was asked for"),
    )
    return _sequence("The life of a Send", steps)


def atomic() -> str:
    """A FetchAdd or CmpSwap."""
    steps: tuple[Step, ...] = (
        ("program A", "memory A", f"entry: {2 * SEND_UNIT_OCTETS} bytes"),
        *_POST[1:],
        ("device A", "device B", f"Atomic Request, queue {QN_READ_REQUEST}: operands"),
        ("device B", "device B", "CRC, then STag, rights, bounds"),
        ("memory B", "device B", f"{ATOMIC_OCTETS} bytes are read"),
        ("device B", "device B", "the atomic unit computes: one step"),
        ("device B", "memory B", "the new value"),
        ("memory B", "device B", "write response"),
        ("device B", "device A", f"Atomic Response, queue {QN_ATOMIC_RESPONSE}: old value"),
        ("device A", "memory A", "the old value"),
        ("memory A", "device A", "write response"),
        *_COMPLETE,
        ("program B", "program B", "is told nothing"),
    )
    return _sequence("The life of an atomic", steps)
