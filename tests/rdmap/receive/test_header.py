"""A segment is dropped, let go, refused, or passed on to the step that it is for."""

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, SegmentKind
from stagecoach.gateware.rdmap.receive.decode import KIND
from stagecoach.gateware.rdmap.receive.header import ReceiveHeader
from stagecoach.gateware.rdmap.receive.record import VERDICT
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.cosim.streams import (
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)
from stagecoach.sim.model.rdmap import Opcode
from tests.support.runner import run_cocotb

CONFIG = RnicConfig(qps=4)
SEGMENT = Layouts(CONFIG).segment
SEGMENTS = 600
STEPS = ("send", "request", "response")
NOTHING = unpack(VERDICT, 0)
REPORTS = {
    SegmentKind.CRC_ERROR: Cause.CRC_ERROR,
    SegmentKind.CLOSED: Cause.LLP_CLOSED,
    SegmentKind.CLOSED_INSIDE: Cause.LLP_CLOSED_INSIDE_FPDU,
    SegmentKind.MARKER_ERROR: Cause.MARKER_MISMATCH,
}
"""What the MPA receiver reports, and what it is called."""


def test_receive_header():
    run_cocotb(ReceiveHeader(CONFIG), __name__)


class _Look:
    """What the block does in a cycle, and junk at the inputs that it must not look at then."""

    def __init__(self, dut, rng):
        self.dut, self.rng = dut, rng

    async def cycle(self):
        """The verdict, and the steps to which a segment is offered."""
        dut = self.dut
        await RisingEdge(dut.clk)
        offered = [step for step in STEPS if getattr(dut, f"{step}__valid").value]
        assert dut.segment__ready.value == dut.over.value
        return unpack(VERDICT, dut.verdict.value), offered

    def junk(self):
        for name in ("failed", "cause", "drops"):
            port = getattr(self.dut, name)
            port.value = self.rng.getrandbits(len(port))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_ways_of_segments(dut):
    rng = seeded_random()
    dut.segment__valid.value = dut.over.value = 0
    for step in STEPS:
        getattr(dut, f"{step}__ready").value = 0
    await start_clock_and_reset(dut)
    look, ways = _Look(dut, rng), set()
    for _ in range(SEGMENTS):
        # Nothing happens without a segment.
        for _ in range(rng.randint(1, 3)):
            look.junk()
            assert await look.cycle() == (NOTHING, [])
        report = rng.choice(list(REPORTS)) if rng.random() < 0.2 else SegmentKind.FPDU
        step = rng.choice([None, *STEPS])
        is_write = step is None and rng.random() < 0.8
        kind = unpack(KIND, rng.getrandbits(width_of(KIND)))
        opcode = Opcode.RDMA_WRITE if is_write else rng.choice(list(Opcode)[1:])
        kind["opcode"] = opcode.value
        kind["request"], kind["response"] = int(step == "request"), int(step == "response")
        octets = rng.choice([0, 1, rng.getrandbits(16)])
        drops, failed = rng.random() < 0.15, rng.random() < 0.2
        cause = rng.choice([Cause.TERMINATE_RECEIVED, Cause.UNTAGGED_MSN])
        segment = unpack(SEGMENT, rng.getrandbits(width_of(SEGMENT) - 3)) | {"kind": report.value}

        # The segment comes.
        dut.segment__valid.value, dut.segment__payload.value = 1, pack(SEGMENT, segment)
        assert await look.cycle() == (NOTHING, [])
        # A cycle later its kind is known, and whether its header failed.
        dut.kind.value, dut.payload.value = pack(KIND, kind), octets
        dut.failed.value, dut.drops.value = int(failed), int(drops)
        is_fpdu = report == SegmentKind.FPDU
        verdict, offered = await look.cycle()
        assert not offered
        look.junk()
        way = "over"
        if drops or (is_write and is_fpdu and not failed):
            pieces = int(is_write and octets != 0)
            assert verdict == NOTHING | {"valid": 1, "dropped": int(drops), "pieces": pieces}
            ways.add("dropped" if drops else f"{pieces} pieces of a Write")
        else:
            assert not verdict["valid"]
            way = "refused" if failed or not is_fpdu else "passed"
        if way == "refused":
            dut.cause.value = cause.value
            told = cause if is_fpdu else REPORTS[report]
            tells = int(cause == Cause.TERMINATE_RECEIVED)
            expected = NOTHING | {"valid": 1, "cause": told.value, "tells": tells}
            assert await look.cycle() == (expected, [])
            ways.add(told)
        elif way == "passed":
            to = step or "send"
            others = [other for other in STEPS if other != to]
            for _ in range(rng.randint(0, 5)):
                for other in others:
                    getattr(dut, f"{other}__ready").value = rng.getrandbits(1)
                assert await look.cycle() == (NOTHING, [to])
                assert unpack(KIND, getattr(dut, f"{to}__payload").value) == kind
                look.junk()
            getattr(dut, f"{to}__ready").value = 1
            assert await look.cycle() == (NOTHING, [to])
            for other in STEPS:
                getattr(dut, f"{other}__ready").value = 0
            ways.add(to)
        # It stands until its record is taken.
        for _ in range(rng.randint(0, 4)):
            look.junk()
            assert await look.cycle() == (NOTHING, [])
        dut.over.value = 1
        assert await look.cycle() == (NOTHING, [])
        dut.over.value = dut.segment__valid.value = 0
    known = {"dropped", "0 pieces of a Write", "1 pieces of a Write", *STEPS, *REPORTS.values()}
    assert ways == known | {Cause.TERMINATE_RECEIVED, Cause.UNTAGGED_MSN}
