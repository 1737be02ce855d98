"""Messages that a device receives, as cocotb tests of one device.

One QP has all FPDUs at hand from the beginning. Several QPs have `FPDUS_AHEAD` in all
(`bench/arrivals.py`).
"""

import random
from collections import deque
from typing import Any

import cocotb
from cocotb.task import bridge

from bench.arrivals import InRuns, Interleaved
from bench.catalogue import FPDUS_AHEAD, full_segment
from bench.peer import Peer
from bench.ports import HostWrites, Ports
from bench.rig import Bench, open_device, options, reach, report
from bench.stamps import WARM_UP, Stamp, steady
from stagecoach.host_driver import SGE, RecvWR
from stagecoach.hw.interface.queue_entries import COMPLETION_ENTRY_OCTETS

PHASE_LANE = 1 << (COMPLETION_ENTRY_OCTETS - 1) % 8


class Placed:
    """Stamps of what is written to host memory.

    Attributes
    ----------
    octets: stamps of the words of the buffer. completions: stamps of completion entries, at their
    last words; each counts as a message of `size` bytes. total: bytes of the buffer written.
    """

    def __init__(self, ports: Ports, bench: Bench, size: int):
        self._ports = ports
        self._size = size
        address = bench.mr.host_address
        self._buffer = range(address, address + len(bench.buffer))
        ring = bench.cq._ring
        self._ring = range(ring.address, ring.address + ring.entries * COMPLETION_ENTRY_OCTETS)
        self.octets: list[Stamp] = []
        self.completions: list[Stamp] = []
        self.total = 0
        HostWrites(ports, self._take)

    def _take(self, address: int, strobe: int) -> None:
        if address in self._buffer:
            count = strobe.bit_count()
            size = self._size or 1
            before = self.total // size
            self.total += count
            messages = self.total // size - before
            self.octets.append(Stamp(self._ports.cycle, count, messages))
        elif address in self._ring:
            last_word = (address - self._ring.start + 8) % COMPLETION_ENTRY_OCTETS == 0
            if last_word and strobe & PHASE_LANE:
                self.completions.append(Stamp(self._ports.cycle, self._size, 1))


@cocotb.test()
async def check_receive(dut: Any) -> None:
    """Bytes, messages and cycles of what comes to host memory.

    Of Sends of one FPDU the completion entries count, else the payload.
    """
    case = options()
    octets, qps = case["octets"], case["qps"]
    each = case["messages"] // qps
    sends = case["operation"] == "send"
    device = await open_device(dut, case)
    made: list[Bench] = []

    def make() -> None:
        bench = Bench(
            device,
            max(octets * each * qps, 8),
            case["emss"],
            qps,
            depth=max(each, 2),
            markers=case["markers"],
            slow=case["slow"],
            srq_wr=each * qps if case["srq"] else 0,
        )
        made.append(bench)
        if bench.srq is not None:
            bench.srq.post_recv(*(_receive(bench, octets, at) for at in range(each * qps)))
        elif sends:
            for number, qp in enumerate(bench.qps):
                qp.post_recv(*(_receive(bench, octets, number * each + at) for at in range(each)))
            if bench.slow is not None and case["slow"] != "receive_queue_empty":
                bench.slow.post_recv(*[RecvWR()] * each)

    await bridge(make)()
    (bench,) = made
    payload = random.Random(1).randbytes(octets * each * qps)
    fpdus: dict[int, deque[bytes]] = {}
    for number, qp in enumerate(bench.qps):
        peer = Peer(case["emss"], case["markers"])
        fpdus[qp.qp_num] = deque()
        for message in range(number * each, (number + 1) * each):
            at = message * octets
            part = payload[at : at + octets]
            fpdus[qp.qp_num] += (
                peer.send(part) if sends else peer.write(bench.mr.stag, bench.mr.addr + at, part)
            )
    ports = Ports(dut)
    placed = Placed(ports, bench, octets)
    if bench.slow is not None:
        fpdus[bench.slow.qp_num] = deque(troubles(case["slow"], case["emss"], each))
    if qps == 1:
        device.llp.receive(bench.qp.qp_num, b"".join(fpdus[bench.qp.qp_num]))
    elif case["in_a_row"] > 1:
        runs = InRuns(ports, device, fpdus, case["in_a_row"], random.Random(2))
        runs.begin(FPDUS_AHEAD)
    else:
        Interleaved(ports, device, fpdus).begin(max(1, FPDUS_AHEAD // qps))
    await reach(dut, "bytes written", len(payload), lambda: placed.total)
    if sends:
        await reach(dut, "completions", each * qps, lambda: len(placed.completions))
    one_fpdu = octets <= full_segment("send", case["emss"], case["markers"])
    stamps = placed.completions if sends and one_fpdu else placed.octets
    written, expected = bytes(bench.buffer[: len(payload)]), payload
    if bench.srq is not None:
        # Any QP may have taken any entry.
        written, expected = (_messages(each, octets) for each in (written, expected))
    assert written == expected, "host memory does not have what was sent"
    report(steady(stamps))


def _messages(octets: bytes, size: int) -> bytes:
    """The same messages, which are of that size, in one order."""
    return b"".join(sorted(octets[at : at + size] for at in range(0, len(octets), size)))


def troubles(slow: str, emss: int, count: int) -> list[bytes]:
    """What arrives at a slow QP by turns with the others."""
    peer = Peer(emss)
    if slow == "fpdu_incomplete":
        (fpdu,) = peer.send(bytes(full_segment("send", emss)))
        return [fpdu[: len(fpdu) // 8 * 4]]
    if slow in ("receive_queue_empty", "receive_entries_late"):
        return [fpdu for _ in range(count) for fpdu in peer.send(b"")]
    return []


def _receive(bench: Bench, octets: int, number: int) -> RecvWR:
    if not octets:
        return RecvWR()
    return RecvWR(sg=[SGE(bench.mr.addr + number * octets, octets, bench.mr.lkey)])


@cocotb.test()
async def check_receive_empty(dut: Any) -> None:
    """Messages and cycles of RDMA Writes without payload, one QP, all at hand.

    They leave nothing in host memory: the cycles are those between the completions of two Sends,
    one before them and one after them. The second Send counts as one of the messages.
    """
    case = options()
    count = case["messages"]
    warm_up = int(count * WARM_UP)
    device = await open_device(dut, case)
    made: list[Bench] = []

    def make() -> None:
        made.append(Bench(device, 8, case["emss"]))
        made[0].qp.post_recv(RecvWR(), RecvWR())

    await bridge(make)()
    (bench,) = made
    ports, peer = Ports(dut), Peer(case["emss"])
    placed = Placed(ports, bench, 0)
    fpdus: list[bytes] = []
    for writes in (warm_up, count - warm_up):
        for _ in range(writes):
            fpdus += peer.write(bench.mr.stag, bench.mr.addr, b"")
        fpdus += peer.send(b"")
    device.llp.receive(bench.qp.qp_num, b"".join(fpdus))
    await reach(dut, "completions", 2, lambda: len(placed.completions))
    begin, end = (stamp.cycle for stamp in placed.completions)
    report({"octets": 0, "messages": count - warm_up + 1, "cycles": end - begin})
