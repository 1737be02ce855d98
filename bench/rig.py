"""What the benchmark cases share: a device at work, and the file for their figures."""

import json
import os
from pathlib import Path
from typing import Any

from cocotb.triggers import ClockCycles

from host_driver import CQ, MR, PD, QP, AccessFlags, Context, QPInitAttr
from sim.cosim.device import CocotbDevice, start_clock

READS = 8
"""Requests that are outstanding: IRD and ORD."""


def parameter(name: str) -> int:
    """A number that the run was given."""
    return int(os.environ[name])


def report(figures: dict[str, Any]) -> None:
    """Writes the figures of the case."""
    Path(os.environ["RESULT"]).write_text(json.dumps(figures))


class Null:
    """A stream whose other end is the benchmark."""

    maximum_segment_size = 1460

    def __init__(self, device: CocotbDevice, emss: int):
        self._device = device
        self._emss = emss

    def attach(self, connection: int) -> None:
        self._device.llp.attach(connection, lambda octets: None, self._emss)

    def close(self) -> None:
        pass


class Bench:
    """A device with connected QPs, `qp` is the first of them, and a registered buffer."""

    def __init__(self, device: CocotbDevice, octets: int, emss: int, qps: int = 1):
        self.context = Context(device)  # type: ignore[arg-type]
        self.pd = PD(self.context)
        self.cq = CQ(self.context)
        self.qps = [QP(self.pd, QPInitAttr(self.cq, self.cq)) for _ in range(qps)]
        self.qp = self.qps[0]
        self.buffer = bytearray(octets)
        access = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ
        self.mr = MR(self.pd, self.buffer, access)
        for qp in self.qps:
            qp.connect(
                Null(device, emss),  # type: ignore[arg-type]
                initiator=True,
                crc=True,
                ord=READS,
                ird=READS,
                emss=emss,
            )


async def first(items: list[int], clock: Any) -> None:
    """Waits until there is an item."""
    while not items:
        await ClockCycles(clock, 1)


async def open_device(dut: Any) -> CocotbDevice:
    """The device, out of reset, with its clock."""
    device = CocotbDevice(dut)
    await start_clock(dut)
    device.start()
    return device
