"""The speed of a simulator, as a cocotb test of one device."""

import time
from typing import Any

import cocotb
from cocotb.task import bridge
from cocotb.triggers import ClockCycles

from bench.rig import Bench, open_device, options, reach, report
from bench.transmit_cases import requests


@cocotb.test()
async def check_speed(dut: Any) -> None:
    """Seconds that the simulator takes for `cycles` of one RDMA Write, from its first FPDU on.

    The Python around the device is included: less than a tenth under Icarus.
    """
    case = options()
    octets = case["octets"]
    device = await open_device(dut)
    fpdus: list[int] = []  # octets

    def sent(connection: int, fpdu: bytes) -> None:
        fpdus.append(len(fpdu))

    device.llp.on_fpdu = sent

    def run() -> None:
        bench = Bench(device, octets, case["emss"])
        bench.qp.post_send(*requests(bench, "write", octets, 1))

    await bridge(run)()
    await reach(dut, "FPDUs", 1, lambda: len(fpdus))
    before = len(fpdus)
    started = time.perf_counter(), device.llp.cycle
    await ClockCycles(dut.clk, case["cycles"])
    seconds = time.perf_counter() - started[0]
    assert sum(fpdus) < octets, "the RDMA Write ended while its time was taken"
    report(
        {
            "fpdus": len(fpdus) - before,
            "fpdu_octets": sum(fpdus[before:]),
            "cycles_simulated": device.llp.cycle - started[1],
            "seconds": seconds,
        }
    )
