"""What the benchmark cases share: a device at work, its options, and the file for the figures."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cocotb.triggers import ClockCycles

from stagecoach.host_driver import CQ, MR, PD, QP, AccessFlags, Context, QPInitAttr
from stagecoach.host_driver.qp_queues import QPCap
from stagecoach.sim.cosim.device import CocotbDevice, start_clock

READS = 8
"""IRD and ORD of a QP: the largest of the default device."""

STALL_CYCLES = 100_000
"""So long nothing may happen while a case waits."""

STEP_CYCLES = 50
"""Cycles between two looks."""


def options() -> dict[str, Any]:
    """What the run was asked to do."""
    return json.loads(os.environ["OPTIONS"])


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
    """A device with connected QPs, `qp` is the first of them, and a registered buffer.

    `depth`: work requests that the send queue and the receive queue of a QP hold.
    """

    def __init__(
        self,
        device: CocotbDevice,
        octets: int,
        emss: int,
        qps: int = 1,
        *,
        depth: int = 64,
        markers: bool = False,
    ):
        self.context = Context(device)  # type: ignore[arg-type]
        self.pd = PD(self.context)
        self.cq = CQ(self.context, min(2 * qps * depth, 1 << 15))
        cap = QPCap(depth, depth)
        attributes = QPInitAttr(self.cq, self.cq, cap, rfc7306=True)
        self.qps = [QP(self.pd, attributes) for _ in range(qps)]
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
                markers_tx=markers,
                markers_rx=markers,
            )


async def open_device(dut: Any, read_latency: int = 250) -> CocotbDevice:
    """The device, out of reset, with its clock."""
    device = CocotbDevice(dut, read_latency=read_latency, write_latency=50)
    await start_clock(dut)
    device.start()
    return device


async def reach(
    dut: Any,
    what: str,
    total: int,
    count: Callable[[], int],
    progress: Callable[[], int] | None = None,
) -> None:
    """Waits until `count()` is `total`; `AssertionError` names `what` if `progress()` stands still.

    `progress` is `count` itself if it is not given.
    """
    progress = progress or count
    last, idle = -1, 0
    while (now := count()) < total:
        moved = progress()
        idle = 0 if moved != last else idle + STEP_CYCLES
        last = moved
        assert idle < STALL_CYCLES, f"{now} of {total} {what}, then nothing for {idle} cycles"
        await ClockCycles(dut.clk, STEP_CYCLES)
