"""What the benchmark cases share: a device at work, its options, and the file for the figures."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cocotb.triggers import ClockCycles

from bench.many_qps import NOT_SLOW
from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SRQ,
    AccessFlags,
    Context,
    QPInitAttr,
    SRQInitAttr,
)
from stagecoach.host_driver.qp_attr import QPCap
from stagecoach.host_driver.work_queue import WorkQueue
from stagecoach.sim.cosim.device import CocotbDevice, start_clock

READS = 8
"""IRD and ORD of a QP: the largest of the default device."""

LATE_CYCLES = 1000
"""By which reads of receive entries are late if that makes a QP slow."""

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

    def __init__(self, device: CocotbDevice, emss: int, shut: bool = False):
        self._device = device
        self._emss = emss
        self._shut = shut

    def attach(self, connection: int) -> None:
        self._device.llp.attach(connection, lambda octets: None, self._emss, shut=self._shut)

    def close(self) -> None:
        pass


class Bench:
    """A device with connected QPs, `qp` is the first of them, and a registered buffer.

    `depth`: work requests that the send queue and the receive queue of a QP hold. `slow`: what is
    wrong with one more QP, the attribute `slow`, which has a CQ of its own (`bench.many_qps.SLOW`);
    `None`: there is no such QP. `at_work`: all QPs that have something to do, the slow one first.
    `srq_wr`: the QPs take their receives from the attribute `srq`, an SRQ for so many; 0: from
    their own queues.
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
        slow: str | None = None,
        srq_wr: int = 0,
    ):
        self.context = Context(device)  # type: ignore[arg-type]
        self.pd = PD(self.context)
        self.cq = CQ(self.context, min(2 * qps * depth, 1 << 15))
        cap = QPCap(depth, depth)
        self.srq = SRQ(self.pd, SRQInitAttr(srq_wr)) if srq_wr else None
        self.qps = [self._make_qp(self.cq, cap, self.srq) for _ in range(qps)]
        self.qp = self.qps[0]
        self.at_work = list(self.qps)
        self.slow: QP | None = None
        if slow is not None:
            self.slow = self._make_qp(CQ(self.context, 2 * depth), cap)
            if slow != NOT_SLOW:
                self.at_work.insert(0, self.slow)
            if slow == "receive_entries_late":
                device.axi.delay(_addresses(self.slow), LATE_CYCLES)
        self.buffer = bytearray(octets)
        access = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ
        self.mr = MR(self.pd, self.buffer, access)
        for qp in (*self.qps, self.slow):
            if qp is None:
                continue
            qp.connect(
                Null(device, emss, slow == "window_shut" and qp is self.slow),  # type: ignore[arg-type]
                initiator=True,
                crc=True,
                ord=READS,
                ird=READS,
                emss=emss,
                markers_tx=markers,
                markers_rx=markers,
            )

    def _make_qp(self, cq: CQ, cap: QPCap, srq: SRQ | None = None) -> QP:
        return QP(self.pd, QPInitAttr(cq, cq, cap, rfc7306=True, srq=srq))


def _addresses(qp: QP) -> range:
    """Where the receive ring of a QP is."""
    queue = qp._queues.receive
    assert isinstance(queue, WorkQueue)
    ring = queue.ring
    return range(ring.address, ring.address + ring.entries * ring.entry_octets)


async def open_device(dut: Any, case: Mapping[str, Any]) -> CocotbDevice:
    """The device, out of reset, with its clock, and the latencies of a case around it."""
    device = CocotbDevice(
        dut,
        read_latency=case["read_latency"],
        write_latency=50,
        llp_latency=case["llp_latency"],
    )
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
