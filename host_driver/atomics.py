"""The atomics of RFC 7306, as send work requests have them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from host_driver.enums import WROpcode
from hw.interface.queue_entries import AtomicOperation

if TYPE_CHECKING:
    from host_driver.wr import SendWR

ATOMIC_OCTETS = 8
"""What an atomic reads and changes (RFC 7306, 5.1)."""

ALL_ONES = 2**64 - 1

OPERATIONS = {
    WROpcode.ATOMIC_FETCH_AND_ADD: AtomicOperation.FETCH_ADD,
    WROpcode.ATOMIC_SWAP: AtomicOperation.SWAP,
    WROpcode.ATOMIC_CMP_AND_SWP: AtomicOperation.CMP_SWAP,
}
"""AOpCodes (RFC 7306, Figure 5; Swap: draft-ietf-storm-rdmap-ext-00)."""


@dataclass(frozen=True)
class Operands:
    """What an Atomic Request has beside its target (RFC 7306, 5.2.1)."""

    data: int
    mask: int
    compare: int = 0
    compare_mask: int = ALL_ONES


def operands_of(request: "SendWR") -> Operands:
    """Those of a request for an atomic."""
    if request.opcode == WROpcode.ATOMIC_FETCH_AND_ADD:
        return Operands(request.compare_add, request.add_mask)
    if request.opcode == WROpcode.ATOMIC_SWAP:
        return Operands(request.swap, ALL_ONES)
    return Operands(request.swap, request.swap_mask, request.compare_add, request.compare_mask)


def entry_fields(request: "SendWR") -> dict[str, int]:
    """The fields of a send entry that only an atomic has."""
    if request.opcode not in OPERATIONS:
        return {}
    operands = operands_of(request)
    return {
        "atomic_operation": OPERATIONS[WROpcode(request.opcode)],
        "add_or_swap_data": operands.data,
        "add_or_swap_mask": operands.mask,
        "compare_data": operands.compare,
        "compare_mask": operands.compare_mask,
    }


def check_atomic(request: "SendWR") -> None:
    """Raises `ValueError` unless one element takes the original value."""
    lengths = [element.length for element in request.sg]
    if lengths != [ATOMIC_OCTETS]:
        name = WROpcode(request.opcode).name
        raise ValueError(
            f"{name} with elements of {lengths} octets; allowed: one of {ATOMIC_OCTETS}, which "
            "gets the original value"
        )
