"""A Message Sequence Number of FFFFFFFF is followed by 0 (RFC 5041, 4.3), sent and received.

The blocks are built with a first MSN near the end, so that it is reached at all.
"""

from typing import Any

import cocotb
import pytest

from stagecoach.gateware.rdmap.receive import following as receive_following
from stagecoach.gateware.rdmap.receive.context import CONTEXT
from stagecoach.gateware.rdmap.receive.receiver import Receiver
from stagecoach.gateware.rdmap.transmit import complete as transmit_complete
from stagecoach.gateware.rdmap.transmit.transmitter import Transmitter
from stagecoach.hw.interface.queue_entries import SendOpcode
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from stagecoach.sim.model.rdmap import Opcode, control_octet
from tests.rdmap.receive import bench as receiver_bench
from tests.rdmap.receive import segments as receiver_segments
from tests.rdmap.receive.model import AtomicSink, stag_with
from tests.rdmap.transmit import bench as transmit_bench
from tests.rdmap.transmit.bench import LOCAL, Element, Entry
from tests.rdmap.transmit.test_transmitter import CONFIG as TRANSMIT_CONFIG
from tests.support.runner import run_cocotb

pytestmark = pytest.mark.slow

FIRST = 2**32 - 3
MESSAGES = 6
MSNS = [(FIRST + number) % 2**32 for number in range(MESSAGES)]


@pytest.mark.requirement("DDP-4.3-10")
def test_sent_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transmit_complete, "FIRST_MSN", FIRST)
    run_cocotb(Transmitter(TRANSMIT_CONFIG), __name__, test_filter="check_sent")


@pytest.mark.requirement("DDP-4.3-10")
def test_received_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    context = CONTEXT.const({"send_msn": FIRST, "request_msn": FIRST, "atomic_msn": FIRST})
    monkeypatch.setattr(receive_following, "NEW_CONTEXT", context)
    run_cocotb(Receiver(receiver_bench.CONFIG), __name__, test_filter="check_received")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_sent_messages(dut: Any) -> None:
    rng = seeded_random()
    bench = transmit_bench.Bench(dut, TRANSMIT_CONFIG, rng, "always")
    await start_clock_and_reset(dut)
    bench.start()
    qp = await bench.connect(1, pd=1, ord=MESSAGES, emss=1460)
    bench.grant(1, 1 << 20)
    for msn in MSNS:
        # The scoreboard compares the header of each with these.
        qp.send_msn = qp.read_msn = msn
        for opcode in (SendOpcode.SEND, SendOpcode.RDMA_READ):
            stag, base = bench.add_region(1, LOCAL, 10)
            bench.post(1, Entry(opcode, [Element(base, 10, stag)]))
        await bench.settle()
        while qp.outstanding:
            bench.pop_outstanding(1)
    assert bench.jobs == bench.sends_done == 2 * MESSAGES


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_received_messages(dut: Any) -> None:
    rng = seeded_random()
    bench = receiver_bench.Bench(dut, rng, "always")
    await start_clock_and_reset(dut)
    await bench.connect(1)
    qp = bench.model.qps[1]
    qp.sink.sends.msn = qp.sink.read_requests.msn = qp.sink.atomic_responses.msn = FIRST
    for msn in MSNS:
        bench.post(1, receiver_segments.elements(rng, 20))
        bench.send(1, receiver_segments.send(msn, 0, 20, rsvd_ulp=control_octet(Opcode.SEND)))
        bench.send(1, receiver_segments.read_request(rng, msn))
        request = bench.expect_atomic(1, AtomicSink(stag_with(rng), rng.getrandbits(64), 0))
        assert request.identifier == msn
        bench.send(1, receiver_segments.atomic_response(rng, msn))
        await bench.settle()
        bench.answer_reads(1)
    assert not qp.stopped
    assert qp.sink.atomic_responses.msn == (FIRST + MESSAGES) % 2**32
    assert qp.sink.sends.msn == qp.sink.read_requests.msn == (FIRST + MESSAGES) % 2**32
