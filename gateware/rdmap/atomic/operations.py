"""What the stages of the atomic unit tell each other about an operation.

An operation has a number, one more than that of the operation before it, mod twice the number
`count` of operations that are in flight at most. Its entry in each table is the number without the
upper bit.
"""

from typing import Any

from amaranth import unsigned
from amaranth.hdl import Module
from amaranth.lib import data, enum, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import OPERANDS


class AtomicStatus(enum.Enum, shape=unsigned(2)):
    """How an operation ended."""

    DONE = 0
    READ_ERROR = 1  # nothing was changed
    WRITE_ERROR = 2  # it is not known whether memory was changed


def request_layout(config: RnicConfig) -> data.StructLayout:
    """An Atomic Request that passed every check; `address` is a multiple of 8."""
    return data.StructLayout({"qp": config.qp_bits, "address": 64, "operands": OPERANDS})


def response_layout(config: RnicConfig) -> data.StructLayout:
    """Its answer; `original` means something if `status` is DONE."""
    return data.StructLayout({"qp": config.qp_bits, "original": 64, "status": AtomicStatus})


def earlier_layout(count: int) -> data.StructLayout:
    """The latest operation on the same word before one, among those that might still write.

    `latest` is its entry. The `within` operations before one might write when it came; 0 if none
    of them is on its word.
    """
    return data.StructLayout({"latest": range(count), "within": range(count)})


def outcome_layout(count: int) -> data.StructLayout:
    """What an operation did.

    `stored`: its word then has a value of the device, which operation `writer` wrote. It is its own
    number if it `wrote`.
    """
    return data.StructLayout(
        {"wrote": 1, "read_failed": 1, "stored": 1, "writer": range(2 * count)}
    )


class TableReader(wiring.Signature):
    """A read port of a table with an entry for each operation, seen from the reader.

    The table is distributed RAM: `data` is what `entry` has in the same cycle.
    """

    def __init__(self, shape: Any, count: int):
        super().__init__({"entry": Out(range(count)), "data": In(shape)})


def offer(m: Module, table: Memory, reader: Any) -> None:
    """Give a table a read port for a `TableReader`."""
    port = table.read_port(domain="comb")
    m.d.comb += [port.addr.eq(reader.entry), reader.data.eq(port.data)]
