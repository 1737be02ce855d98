"""A QP whose program did not ask for RFC 7306 takes the messages of RFC 5040 and no others."""

from typing import Any

import cocotb
import pytest

from stagecoach.gateware.layouts import StagStatus
from stagecoach.gateware.rdmap.receive.receiver import Receiver
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.model.rdmap import SEND_OPCODES
from tests.rdmap.receive.bench import Bench, start
from tests.rdmap.receive.model import CONFIG, AtomicSink, stag_with
from tests.rdmap.receive.segments import (
    atomic_request,
    atomic_response,
    elements,
    immediate,
    opcode,
    read_request,
    response,
    send,
    write,
)
from tests.rdmap.receive.wrong_segments import Wrong, each_stops_its_qp_only
from tests.support.runner import run_cocotb


@pytest.mark.requirement("RDMAP-7.2-02", "RDMAP-7.2-07", "DDP-7.1-01", "EXT7306-1.1-03")
@pytest.mark.parametrize("pattern", ["always", "random"])
def test_receiver_without_rfc7306(pattern: str) -> None:
    run_cocotb(Receiver(CONFIG), __name__, parameters={"PATTERN": pattern})


def posted(number: int, **fields: Any) -> Wrong:
    """Immediate Data that has a receive."""

    def segment(bench: Bench, rng: Any) -> bytes:
        bench.post(1, elements(rng, 64))
        return immediate(rng, **({"msn": 1} | opcode(number) | fields))

    return segment


def outstanding(**fields: Any) -> Wrong:
    """The response to an atomic that this end asked for all the same."""

    def segment(bench: Bench, rng: Any) -> bytes:
        request = bench.expect_atomic(1, AtomicSink(stag_with(rng), 64, 1))
        return atomic_response(rng, request.identifier, **fields)

    return segment


# Whatever else is wrong with them: the opcode is looked at first, as if it were none at all.
WRONG: list[tuple[Cause, Wrong]] = [
    *((Cause.UNEXPECTED_OPCODE, posted(number)) for number in (8, 9)),
    *((Cause.UNEXPECTED_OPCODE, posted(number, qn=qn)) for number in (8, 9) for qn in (1, 3, 4)),
    *((Cause.UNEXPECTED_OPCODE, posted(number, msn=2, mo=7)) for number in (8, 9)),
    (Cause.UNEXPECTED_OPCODE, lambda bench, rng: immediate(rng, 1)),
    *(
        (Cause.UNEXPECTED_OPCODE, lambda bench, rng, n=n: atomic_request(rng, 1, operation=n))
        for n in (0, 1, 2, 3)
    ),
    (Cause.UNEXPECTED_OPCODE, lambda bench, rng: atomic_request(rng, 1, 0, StagStatus.INVALID)),
    (Cause.UNEXPECTED_OPCODE, lambda bench, rng: atomic_request(rng, 1, qn=7)),
    (Cause.UNEXPECTED_OPCODE, outstanding()),
    (Cause.UNEXPECTED_OPCODE, outstanding(qn=1)),
    (Cause.UNEXPECTED_OPCODE, lambda bench, rng: atomic_response(rng, 1)),
    # Queue 3 is one of RFC 7306.
    *((Cause.UNTAGGED_QN, lambda bench, rng, qn=qn: send(1, 0, 9, qn=qn)) for qn in (3, 4, 2**31)),
    (Cause.UNTAGGED_QN, lambda bench, rng: read_request(rng, 1, qn=3)),
    # As ever
    (Cause.UNEXPECTED_OPCODE, lambda bench, rng: send(1, 0, 9, qn=2)),
    (Cause.UNEXPECTED_OPCODE, lambda bench, rng: write(rng, 9, **opcode(8))),
    (Cause.UNTAGGED_DDP_VERSION, posted(8, version=2)),
    (Cause.RDMAP_VERSION, posted(8, rsvd_ulp=0x88)),
]


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_every_message_of_rfc_7306_stops_its_qp_only(dut: Any) -> None:
    bench = await start(dut)
    await each_stops_its_qp_only(bench, WRONG, rfc7306=False)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_each_connection_of_each_qp_says_it_for_itself(dut: Any) -> None:
    """QPs that take them and QPs that do not, in turns; all take what is of RFC 5040."""
    bench = await start(dut)
    rng = bench.rng
    takes = [rng.random() < 0.5 for _ in range(CONFIG.qps)]
    refused = 0
    for _ in range(12):
        takes = [rng.choice([each, not each]) for each in takes]
        for number, each in enumerate(takes):
            bench.take_back(number)
            await bench.connect(number, rfc7306=each)
        for number in rng.sample(range(CONFIG.qps), CONFIG.qps):
            stag = stag_with(rng)
            bench.post(number, elements(rng, 64))
            bench.expect_read(number, stag, 0, 5)
            bench.send(number, write(rng, 9))
            bench.send(number, send(1, 0, 9, **opcode(rng.choice(sorted(SEND_OPCODES - {4, 6})))))
            bench.send(number, read_request(rng, 1))
            bench.send(number, response(stag, 0, 5, True))
            assert not bench.model.qps[number].stopped
        for number in rng.sample(range(CONFIG.qps), CONFIG.qps):
            bench.post(number, elements(rng, 64))
            bench.send(number, rng.choice([immediate(rng, 2), atomic_request(rng, 2)]))
            assert bench.model.qps[number].stopped == (not takes[number])
            refused += not takes[number]
        await bench.settle()
    assert 0 < refused < 12 * CONFIG.qps
