"""The speed of a simulator, as a cocotb test of one device."""

import time
from typing import Any

import cocotb
from cocotb.task import bridge
from cocotb.triggers import ClockCycles, RisingEdge

from bench.rig import Bench, open_device, options, reach, report
from bench.transmit_cases import requests


async def _send(dut: Any, octets: int, emss: int) -> list[int]:
    """Starts an RDMA Write; bytes of its FPDUs, one of which has left, and of those to come."""
    device = await open_device(dut, options())
    fpdus: list[int] = []

    def sent(connection: int, fpdu: bytes) -> None:
        fpdus.append(len(fpdu))

    device.llp.on_fpdu = sent

    def run() -> None:
        bench = Bench(device, octets, emss)
        bench.qp.post_send(*requests(bench, "write", octets, 1))

    await bridge(run)()
    await reach(dut, "FPDUs", 1, lambda: len(fpdus))
    return fpdus


@cocotb.test()
async def check_speed(dut: Any) -> None:
    """Seconds of a core for `cycles` of one RDMA Write, from its first FPDU on.

    The Python around the device is included: less than a tenth under Icarus.
    """
    case = options()
    fpdus = await _send(dut, case["octets"], case["emss"])
    before = len(fpdus)
    started = time.process_time()
    await ClockCycles(dut.clk, case["cycles"])
    seconds = time.process_time() - started
    assert sum(fpdus) < case["octets"], "the RDMA Write ended while its time was taken"
    report(
        {
            "fpdus": len(fpdus) - before,
            "fpdu_octets": sum(fpdus[before:]),
            "cycles_simulated": case["cycles"],
            "seconds": seconds,
        }
    )


@cocotb.test()
async def check_record(dut: Any) -> None:
    """All that enters the device from reset on, until `cycles` of one RDMA Write have gone by.

    Of each port in `ports` the value before each rising edge; `start`, the first of the cycles.
    """
    case = options()
    signals = [getattr(dut, name) for name in case["ports"]]
    rows: list[list[int]] = []

    async def record() -> None:
        while True:
            await RisingEdge(dut.clk)
            if not dut.rst.value:
                rows.append([int(signal.value) for signal in signals])

    cocotb.start_soon(record())
    await _send(dut, case["octets"], case["emss"])
    start = len(rows)
    await ClockCycles(dut.clk, case["cycles"])
    columns = {name: [row[at] for row in rows] for at, name in enumerate(case["ports"])}
    report({"start": start, "ports": columns})
