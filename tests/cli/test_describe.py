"""What `info` and `devices` tell of a device is what its registers say."""

import pytest

from stagecoach.cli.describe import capabilities, in_words, sizes
from stagecoach.host_driver import Context, registers
from stagecoach.host_driver.enums import WROpcode
from tests.host_driver.fake_device import CQS, QPS, READS, STAGS_LOG2, FakeDevice

OF_RFC_5040 = {
    *(WROpcode.RDMA_WRITE, WROpcode.RDMA_READ, WROpcode.SEND, WROpcode.SEND_WITH_INV),
    *(WROpcode.LOCAL_INV, WROpcode.REG_MR),
}
IMMEDIATE = {WROpcode.IMM_DATA, WROpcode.RDMA_WRITE_WITH_IMM}
ATOMICS = {WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.ATOMIC_CMP_AND_SWP}


@pytest.mark.parametrize(
    ("has", "more"),
    [
        ({}, set()),
        ({"immediate_data": 1}, IMMEDIATE),
        ({"atomics": 1}, ATOMICS),
        ({"atomics": 1, "swap": 1, "immediate_data": 1}, set(WROpcode) - OF_RFC_5040),
    ],
)
def test_operations_are_those_of_the_device(has, more):
    device = FakeDevice()
    device.words[registers.CAPABILITIES.address] = registers.CAPABILITIES.pack(**has)
    with Context(device) as context:
        attr = context.query_device()
    assert set(attr.operations) == OF_RFC_5040 | more
    assert capabilities(attr)["operations"] == [opcode.name for opcode in attr.operations]
    found = {"max_qp": QPS, "max_cq": CQS, "max_mr": 1 << STAGS_LOG2, "max_qp_rd_atom": READS}
    assert found.items() <= sizes(attr).items()


def test_values_are_told_in_words():
    assert [in_words(one) for one in (True, False, 3, [], ["A", "B"])] == [
        *("yes", "no", "3", "none", "A, B")
    ]
