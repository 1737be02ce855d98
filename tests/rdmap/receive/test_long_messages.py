"""Message Offset and Tagged Offset of messages far longer than any buffer of a test, both ways.

The receiver is built as if most of a message had come already; the transmitter sends pieces, which
are no octets yet.
"""

from typing import Any

import cocotb
import pytest

from stagecoach.gateware.rdmap.receive import following as receive_following
from stagecoach.gateware.rdmap.receive.context import CONTEXT
from stagecoach.gateware.rdmap.receive.receiver import Receiver
from stagecoach.gateware.rdmap.transmit.transmitter import Transmitter
from stagecoach.hw.interface.queue_entries import SendOpcode
from stagecoach.hw.interface.wire import FIRST_MSN
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from stagecoach.sim.model.rdmap import Opcode
from tests.rdmap.receive import bench as receiver_bench
from tests.rdmap.receive import segments as receiver_segments
from tests.rdmap.receive.model import stag_with
from tests.rdmap.transmit import bench as transmit_bench
from tests.rdmap.transmit.bench import LOCAL, Element, Entry
from tests.rdmap.transmit.test_transmitter import CONFIG as TRANSMIT_CONFIG
from tests.support.runner import run_cocotb

pytestmark = pytest.mark.slow

LONGEST = 2**32 - 1
CAME = LONGEST - 3000
"""Octets that are there when the test begins: all their high bits are ones."""

SENT = 2**22 + 3
"""Octets of a message that is sent: dozens of FPDUs."""


@pytest.mark.requirement("DDP-7.1-03", "DDP-7.1-04", "DDP-4.3-11", "RDMAP-4.4-05")
def test_received_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    context = CONTEXT.const(
        {
            "send_msn": FIRST_MSN,
            "request_msn": FIRST_MSN,
            "atomic_msn": FIRST_MSN,
            "send_mo": CAME,
            "send_begun": 1,
            "send_opcode": Opcode.SEND,
            "response_octets": CAME,
        }
    )
    monkeypatch.setattr(receive_following, "NEW_CONTEXT", context)
    run_cocotb(Receiver(receiver_bench.CONFIG), __name__, test_filter="check_received")


@pytest.mark.requirement("DDP-5.2-05", "DDP-5.2-07", "DDP-5.2-08", "DDP-4.3-11")
def test_sent_messages() -> None:
    run_cocotb(Transmitter(TRANSMIT_CONFIG), __name__, test_filter="check_sent")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_received_messages(dut: Any) -> None:
    rng = seeded_random()
    bench = receiver_bench.Bench(dut, rng, "always")
    await start_clock_and_reset(dut)
    await bench.connect(1)
    qp = bench.model.qps[1]
    bench.post(1, receiver_segments.elements(rng, 2**31, 2**31 - 1))
    entry = qp.entries[0]
    entry.filled, entry.opcode = CAME, Opcode.SEND
    stag, to = stag_with(rng), rng.getrandbits(64)
    bench.expect_read(1, stag, to, LONGEST)
    qp.reads[0].received = CAME
    for octets, last in ((1000, False), (1460, False), (540, True)):
        bench.send(1, receiver_segments.send(FIRST_MSN, entry.filled, octets, last))
        position = to + qp.reads[0].received
        bench.send(1, receiver_segments.response(stag, position, octets, last))
        await bench.settle()
    assert not qp.stopped and not qp.entries and not qp.reads


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_sent_messages(dut: Any) -> None:
    rng = seeded_random()
    bench = transmit_bench.Bench(dut, TRANSMIT_CONFIG, rng, "always", stag_latency=2)
    await start_clock_and_reset(dut)
    bench.start()
    await bench.connect(1, pd=1, ord=1, emss=65535)
    bench.grant(1, 2**30)
    for opcode in (SendOpcode.SEND, SendOpcode.RDMA_WRITE):
        stag, base = bench.add_region(1, LOCAL, SENT)
        bench.post(1, Entry(opcode, [Element(base, SENT, stag)]))
        await bench.settle()
    # The scoreboard has compared MO and TO of each with those of the model.
    assert bench.sends_done == 2 and bench.jobs > 2 * (SENT // 65535)
