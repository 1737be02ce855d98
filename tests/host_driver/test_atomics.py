"""Atomics: the operands of a work request in its send entry, and those that it may not have."""

import re

import pytest

from stagecoach.host_driver import SGE, SendWR, WROpcode
from stagecoach.hw.interface.queue_entries import AtomicOperation, SendOpcode
from tests.host_driver.fake_device import send_entry

ADD, SWAP, CMP_SWAP = (
    WROpcode.ATOMIC_FETCH_AND_ADD,
    WROpcode.ATOMIC_SWAP,
    WROpcode.ATOMIC_CMP_AND_SWP,
)
ONES = 2**64 - 1
SINK = SGE(0x1000, 8, 0xA1)
GIVEN = {"compare_add": 3, "add_mask": 5, "compare_mask": 7, "swap": 9, "swap_mask": 11}
TAKEN = {
    ADD: ("compare_add", "add_mask"),
    SWAP: ("swap",),
    CMP_SWAP: ("compare_add", "compare_mask", "swap", "swap_mask"),
}


@pytest.mark.requirement("EXT-5.2.1-05", "EXT-5.2.1-06")
@pytest.mark.parametrize(
    ("opcode", "operation", "operands"),
    [
        (ADD, AtomicOperation.FETCH_ADD, (3, 5, 0, ONES)),
        (SWAP, AtomicOperation.SWAP, (9, ONES, 0, ONES)),
        (CMP_SWAP, AtomicOperation.CMP_SWAP, (9, 11, 3, 7)),
    ],
)
def test_what_an_operation_does_not_use_is_as_the_wire_has_it(
    connected, opcode, operation, operands
):
    given = {name: GIVEN[name] for name in TAKEN[opcode]}
    connected.qp.post_send(SendWR(1, opcode, [SINK], remote_addr=0x77, rkey=0x88, **given))
    entry = send_entry(connected, 0)
    assert (entry["opcode"], entry["atomic_operation"]) == (SendOpcode.ATOMIC, operation)
    names = ("add_or_swap_data", "add_or_swap_mask", "compare_data", "compare_mask")
    assert tuple(entry[name] for name in names) == operands


@pytest.mark.parametrize(
    ("opcode", "name"),
    [(opcode, name) for opcode in TAKEN for name in GIVEN if name not in TAKEN[opcode]],
)
def test_an_operand_that_would_be_ignored_is_an_error(connected, opcode, name):
    message = f"{opcode.name} with {name} {GIVEN[name]:#x}; allowed: {', '.join(TAKEN[opcode])}"
    with pytest.raises(ValueError, match=f"{re.escape(message)}$"):
        connected.qp.post_send(SendWR(1, opcode, [SINK], **{name: GIVEN[name]}))
    assert connected.device.doorbells == []
