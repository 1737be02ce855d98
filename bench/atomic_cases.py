"""Atomics that a device carries out for its peers, as cocotb tests of one device."""

from typing import Any

import cocotb
from cocotb.task import bridge
from cocotb.triggers import ClockCycles

from bench.rig import Bench, open_device, options, report
from stagecoach.sim.model.atomics import ATOMIC_OCTETS, FETCH_ADD, AtomicRequest
from stagecoach.sim.model.ddp import segment_untagged
from stagecoach.sim.model.mpa import frame_fpdu, mulpdu
from stagecoach.sim.model.rdmap import QN_READ_REQUEST, Opcode, control_octet

AHEAD = 2
"""Requests of each QP that are outstanding: the next one is there when one is answered."""

WARM_UP = 160
"""Answers before the steady state."""

RESPONSE_OPCODE = control_octet(Opcode.ATOMIC_RESPONSE)


async def _answer_atomics(dut: Any, *, same: bool) -> None:
    """FetchAdds from all QPs, each to a word of its QP or all to one; cycles between answers."""
    case = options()
    emss, qps, operations = case["emss"], case["qps"], case["messages"]
    device = await open_device(dut, case)
    found: dict[str, Bench] = {}
    stamps: list[int] = []
    asked = [0] * qps

    def make() -> None:
        found["bench"] = Bench(device, qps * ATOMIC_OCTETS, emss, qps)

    await bridge(make)()
    bench = found["bench"]
    places = {qp.qp_num: 0 if same else number for number, qp in enumerate(bench.qps)}

    def ask(qp: int) -> None:
        asked[qp] += 1
        to = bench.mr.addr + ATOMIC_OCTETS * places[qp]
        request = AtomicRequest(FETCH_ADD, asked[qp], bench.mr.stag, to, 1, 0)
        (ulpdu,) = segment_untagged(
            request.encode(),
            qn=QN_READ_REQUEST,
            msn=asked[qp],
            mulpdu=mulpdu(emss, False),
            rsvd_ulp=control_octet(Opcode.ATOMIC_REQUEST),
        )
        device.llp.receive(qp, frame_fpdu(ulpdu))

    def sent(connection: int, fpdu: bytes) -> None:
        assert fpdu[3] == RESPONSE_OPCODE
        stamps.append(device.llp.cycle)
        if sum(asked) < operations:
            ask(connection)

    device.llp.on_fpdu = sent
    for _ in range(AHEAD):
        for qp in places:
            ask(qp)
    while len(stamps) < operations:
        await ClockCycles(dut.clk, 100)
    words = [
        int.from_bytes(bench.buffer[at : at + ATOMIC_OCTETS], "little")
        for at in range(0, len(bench.buffer), ATOMIC_OCTETS)
    ]
    assert sum(words) == operations and (not same or words[0] == operations)
    # When no more is asked the unit runs empty, which is no steady state.
    steady = stamps[WARM_UP : -AHEAD * qps]
    report({"messages": len(steady) - 1, "cycles": steady[-1] - steady[0]})


@cocotb.test()
async def check_atomic_responder(dut: Any) -> None:
    """Every QP has a word of its own."""
    await _answer_atomics(dut, same=False)


@cocotb.test()
async def check_atomic_same_address(dut: Any) -> None:
    """All QPs add to one word."""
    await _answer_atomics(dut, same=True)
