"""RDMA Reads, from the side that answers and from the side that asks, as cocotb tests."""

from typing import Any

import cocotb
from cocotb.task import bridge

from bench.peer import REMOTE_STAG, Peer
from bench.ports import Ports, SentFpdus
from bench.receive_cases import Placed
from bench.rig import READS, Bench, open_device, options, reach, report
from bench.stamps import steady
from stagecoach.host_driver import SGE, SendWR, WROpcode
from stagecoach.host_driver.enums import SendFlags
from stagecoach.sim.model.ddp import decode
from stagecoach.sim.model.rdmap import ReadRequest

READS_AHEAD = 64 * READS
"""Requests to a device that are outstanding, of all its QPs."""


@cocotb.test()
async def check_answer_reads(dut: Any) -> None:
    """FPDUs of Read Responses that leave, each at its last beat.

    Every QP has up to `READS` requests outstanding, all have up to `READS_AHEAD`: the next one is
    there when one is answered. A slow QP has some, too, that are not counted.
    With `after_write` each comes after an RDMA Write of as many bytes, which must be visible
    before the Read.
    """
    case = options()
    octets, total = case["octets"], case["messages"]
    device = await open_device(dut, case)
    sent = SentFpdus(device, case["markers"])
    made: list[Bench] = []

    def make() -> None:
        made.append(
            Bench(
                device,
                max(2 * octets, 8),
                case["emss"],
                case["qps"],
                markers=case["markers"],
                slow=case["slow"],
            )
        )

    await bridge(make)()
    (bench,) = made
    peers = {qp.qp_num: Peer(case["emss"], case["markers"]) for qp in bench.at_work}
    first = min(READS, total // case["qps"], max(1, READS_AHEAD // case["qps"]))
    asked = first * case["qps"]

    def ask(qp: int) -> bytes:
        mr, peer = bench.mr, peers[qp]
        fpdus = peer.write(mr.stag, mr.addr, bytes(octets)) if case["after_write"] else []
        return b"".join(fpdus + peer.read(mr.stag, mr.addr + octets, octets))

    def answered(connection: int, ulpdu: bytes) -> None:
        nonlocal asked
        if sent.stamps[-1].messages and asked < total:
            asked += 1
            device.llp.receive(connection, ask(connection))

    sent.on_ulpdu = answered
    for _ in range(first):
        for qp in peers:
            device.llp.receive(qp, ask(qp))
    await sent.reach(dut, total)
    report(steady(sent.stamps))


@cocotb.test()
async def check_ask_reads(dut: Any) -> None:
    """RDMA Reads of the device, `READS` of a QP outstanding, answered at once; what is placed.

    Reads of nothing are signaled, and their completion entries count.
    """
    case = options()
    octets, each = case["octets"], case["messages"] // case["qps"]
    device = await open_device(dut, case)
    sent = SentFpdus(device, case["markers"])
    peers = {qp: Peer(case["emss"], case["markers"]) for qp in range(case["qps"])}

    def answer(connection: int, ulpdu: bytes) -> None:
        _, request = decode(ulpdu)
        device.llp.receive(
            connection, b"".join(peers[connection].answer(ReadRequest.decode(request)))
        )

    sent.on_ulpdu = answer
    found: list[Placed] = []
    ports = Ports(dut)

    def run() -> None:
        bench = Bench(
            device,
            max(octets * each * case["qps"], 8),
            case["emss"],
            case["qps"],
            depth=max(each, 2),
            markers=case["markers"],
        )
        bench.buffer[:] = b"\xff" * len(bench.buffer)
        found.append(Placed(ports, bench, octets))
        for number, qp in enumerate(bench.qps):
            first = bench.mr.addr + number * each * octets
            qp.post_send(*(_read(bench, first + at * octets, octets) for at in range(each)))
        buffers.append(bench.buffer)

    buffers: list[bytearray] = []
    await bridge(run)()
    (placed,) = found
    total = each * case["qps"]
    if octets:
        await reach(dut, "bytes placed", octets * total, lambda: placed.total)
    else:
        await reach(dut, "completions", total, lambda: len(placed.completions))
    assert not any(buffers[0][: octets * total]), "host memory does not have what was read"
    report(steady(placed.octets if octets else placed.completions))


def _read(bench: Bench, address: int, octets: int) -> SendWR:
    return SendWR(
        opcode=WROpcode.RDMA_READ,
        sg=[SGE(address, octets, bench.mr.lkey)],
        send_flags=SendFlags(0) if octets else SendFlags.SIGNALED,
        rkey=REMOTE_STAG,
    )
