"""An FPDU is given away when all of its pieces are allowed; else its QP is stopped and told why.

So is an atomic that begins, to the atomic unit.
"""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import OPERANDS, Layouts, StagStatus
from stagecoach.gateware.rdmap.atomic.operations import request_layout
from stagecoach.gateware.rdmap.transmit.issue import TransmitIssue, record_layout
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)
from stagecoach.sim.model import ddp, rdmap
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig()
LAYOUTS = Layouts(CONFIG)
PIECES = 500
LOCAL, READ, ATOMIC = "local", "read", "atomic"
REFUSED = {
    READ: {
        StagStatus.INVALID: Cause.READ_STAG_INVALID,
        StagStatus.BOUNDS: Cause.READ_BOUNDS,
    },
    ATOMIC: {
        StagStatus.INVALID: Cause.ATOMIC_STAG_INVALID,
        StagStatus.BOUNDS: Cause.ATOMIC_BOUNDS,
        StagStatus.OK: Cause.ATOMIC_MISALIGNED,
    },
}
"""What a refusal of the STag table is called; of local pieces all have one name."""


@pytest.mark.parametrize("pattern", ["always", "slow"])
def test_transmit_issue(pattern):
    run_cocotb(TransmitIssue(CONFIG), __name__, parameters={"PATTERN": pattern})


def _expected_header(record: dict, kind: str) -> bytes:
    """The request that cannot be answered, as it came (RFC 5040, 4.8)."""
    opcode = 0x41 if kind == READ else 0x4A
    header = ddp.UntaggedHeader(1, record["msn"], rsvd_ulp=opcode).encode()
    if kind == ATOMIC:
        return header
    sink = record["job"]["header"].to_bytes(18, "little")
    return (
        header
        + rdmap.ReadRequest(
            int.from_bytes(sink[2:6], "big"),
            int.from_bytes(sink[6:14], "big"),
            record["remaining"],
            record["source_stag"],
            record["source_offset"],
        ).encode()
    )


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_verdicts_become_jobs_or_errors(dut):
    rng = seeded_random(parameter("PATTERN"))
    pattern = parameter("PATTERN")
    layout = record_layout(CONFIG)
    jobs = StreamSink(dut, "job", LAYOUTS.ulpdu_job, rng=rng, pattern=pattern)
    errors = StreamSink(dut, "error", LAYOUTS.qp_error, rng=rng, pattern=pattern)
    atomics = StreamSink(dut, "atomic", request_layout(CONFIG), rng=rng, pattern=pattern)
    for name in ("job", "error", "atomic"):
        StreamMonitor(dut, name, keep=False)
    dut.begin.value = dut.response_valid.value = 0
    await start_clock_and_reset(dut)
    names = ("given away", "kept", "refused", "failed", "begun", "misaligned")
    outcomes = dict.fromkeys(names, 0)
    for _ in range(PIECES):
        kind = rng.choice([LOCAL, READ, ATOMIC])
        record = unpack(layout, rng.getrandbits(width_of(layout)))
        record["responding"], record["about_atomic"] = int(kind != LOCAL), int(kind == ATOMIC)
        record["failed"] = int(rng.random() < 0.1)
        record["cause"] = int(rng.choice([Cause.LOCAL_BAD_ENTRY, Cause.HOST_READ_ERROR]))
        begins = record["begins_atomic"] = int(kind == ATOMIC and rng.random() < 0.8)
        if begins:
            record |= {"asks": 1, "places": 0, "ends": 1}
        asks = record["asks"] = 0 if record["failed"] else record["asks"]
        refused = asks and rng.random() < 0.3
        status = rng.choice([StagStatus.INVALID, StagStatus.BOUNDS]) if refused else StagStatus.OK
        address = rng.getrandbits(64)
        if begins and rng.random() < 0.5:
            address &= ~7
        misaligned = begins and asks and not refused and address % 8 != 0
        operands = unpack(OPERANDS, rng.getrandbits(width_of(OPERANDS)))
        assert dut.free.value
        dut.begin.value = 1
        await RisingEdge(dut.clk)
        dut.begin.value = 0
        dut.record.value, dut.operands.value = pack(layout, record), pack(OPERANDS, operands)
        wait = rng.randint(0, 8)
        words = rng.choice([0, rng.randint(1, 9)])  # cycles until they are written
        cycles, seen, written = 0, set(), []
        while True:
            dut.response_valid.value = int(asks and cycles == wait)
            dut.written.value = int(cycles > words)
            response = {"status": status.value, "address": address}
            dut.response.value = pack(LAYOUTS.stag_response, response)
            await RisingEdge(dut.clk)
            cycles += 1
            dut.record.value = rng.getrandbits(width_of(layout))
            dut.operands.value = rng.getrandbits(width_of(OPERANDS))
            for name in ("commit", "discard", "halt", "end"):
                if getattr(dut, name).value:
                    seen.add(name)
            if dut.refused__valid.value:
                seen.add("atomic refused")
                assert int(dut.refused__qp.value) == record["job"]["qp"]
            if dut.offer.value:
                offered = unpack(LAYOUTS.gather_piece, dut.item.value)
            if dut.write.value:
                written.append(offered)
            if dut.job_begin__valid.value:
                seen.add("job_begin")
                assert int(dut.job_begin__qp.value) == record["job"]["qp"]
                assert bool(dut.is_response.value) == (kind == READ)
            if dut.halt.value:
                assert int(dut.job_begin__qp.value) == record["job"]["qp"]
                halting = int(dut.halting.value)
                assert halting & 1 and halting >> 1 == -record["job"]["until_marker"] % 128
            # `commit` and `write` come a cycle late.
            if dut.free.value:
                break
            assert cycles < 200
        await RisingEdge(dut.clk)
        seen |= {"commit"} if dut.commit.value else set()
        if dut.write.value:
            written.append(offered)
        if asks:
            assert int(dut.address.value) == address
        if record["failed"] or refused or misaligned:
            outcome = "failed" if record["failed"] else "refused" if refused else "misaligned"
            outcomes[outcome] += 1
            # The unit is not to be waited for, if somebody does.
            cancelled = {"atomic refused"} if begins and asks else set()
            assert seen == {"discard", "halt", "end"} | cancelled and not written
            assert not atomics.take_all()
            (error,) = errors.take_all()
            assert error["qp"] == record["job"]["qp"]
            cause = Cause.LOCAL_SEND_PROTECTION
            if record["failed"]:
                cause = record["cause"]
            elif kind != LOCAL:
                cause = REFUSED[kind][status]
            assert error["cause"] == cause
            if kind == LOCAL:
                assert (error["index"], error["header"]) == (record["job"]["sent"]["index"], 0)
            else:
                expected = _expected_header(record, kind)
                header = error["header"].to_bytes(46, "little")
                assert header[: len(expected)] == expected
                assert error["ulpdu_length"] == (46 if kind == READ else 70)
            continue
        assert not errors.take_all()
        if record["places"]:
            (item,) = written
            assert (item["octets"], item["last"]) == (record["octets"], record["ends"])
            assert item["inline"] == record["inline"]
            assert not asks or item["address"] == (0 if record["inline"] else address)
        else:
            assert not written
        if begins:
            outcomes["begun"] += 1
            assert seen == {"end"} and not jobs.take_all()
            (atomic,) = atomics.take_all()
            assert atomic == {
                "qp": record["job"]["qp"],
                "address": address,
                "operands": operands,
            }
            if pattern == "always":
                assert cycles == 4 + max(wait, words)
        elif record["ends"]:
            outcomes["given away"] += 1
            assert seen == {"commit", "job_begin", "end"}
            assert jobs.take_all() == [record["job"]]
            if pattern == "always":
                assert cycles == 4 + max(wait if asks else 0, words)
        else:
            outcomes["kept"] += 1
            assert not seen and not jobs.take_all()
    assert min(outcomes.values()) > PIECES // 30
