"""The atomics of RFC 7306, as send work requests have them."""

from dataclasses import dataclass

from stagecoach.host_driver.enums import ATOMIC_OPERATIONS, WROpcode
from stagecoach.host_driver.wr import ALL_ONES, SendWR
from stagecoach.hw.interface.wire import ATOMIC_OCTETS

_OPERANDS = {
    WROpcode.ATOMIC_FETCH_AND_ADD: ("compare_add", "add_mask"),
    WROpcode.ATOMIC_SWAP: ("swap",),
    WROpcode.ATOMIC_CMP_AND_SWP: ("compare_add", "compare_mask", "swap", "swap_mask"),
}
"""The fields of `SendWR` that an operation takes."""

_UNUSED = {
    "compare_add": 0,
    "add_mask": 0,
    "compare_mask": ALL_ONES,
    "swap": 0,
    "swap_mask": ALL_ONES,
}
"""What the others have."""


@dataclass(frozen=True)
class Operands:
    """What an Atomic Request has beside its target (RFC 7306, 5.2.1)."""

    data: int
    mask: int
    compare: int = 0
    compare_mask: int = ALL_ONES


def operands_of(request: SendWR) -> Operands:
    """Those of a request for an atomic."""
    if request.opcode == WROpcode.ATOMIC_FETCH_AND_ADD:
        return Operands(request.compare_add, request.add_mask)
    if request.opcode == WROpcode.ATOMIC_SWAP:
        return Operands(request.swap, ALL_ONES)
    return Operands(request.swap, request.swap_mask, request.compare_add, request.compare_mask)


def entry_fields(request: SendWR) -> dict[str, int]:
    """The fields of a send entry that only an atomic has."""
    if request.opcode not in ATOMIC_OPERATIONS:
        return {}
    operands = operands_of(request)
    return {
        "atomic_operation": ATOMIC_OPERATIONS[WROpcode(request.opcode)],
        "add_or_swap_data": operands.data,
        "add_or_swap_mask": operands.mask,
        "compare_data": operands.compare,
        "compare_mask": operands.compare_mask,
    }


def check_atomic(request: SendWR) -> None:
    """Raises `ValueError` for a request that no device carries out as it was meant.

    One element takes the original value, and the operation uses every operand that is given: a
    Swap, for one, has no mask (draft-ietf-storm-rdmap-ext-00, 5.2.1).
    """
    opcode = WROpcode(request.opcode)
    lengths = [element.length for element in request.sg]
    if lengths != [ATOMIC_OCTETS]:
        raise ValueError(
            f"{opcode.name} with elements of {lengths} bytes; allowed: one of {ATOMIC_OCTETS}, "
            "which gets the original value"
        )
    taken = _OPERANDS[opcode]
    for name, unused in _UNUSED.items():
        value = int(getattr(request, name))
        if name not in taken and value != unused:
            raise ValueError(f"{opcode.name} with {name} {value:#x}; allowed: {', '.join(taken)}")
