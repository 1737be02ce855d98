"""RDMA Reads, from the side that answers and from the side that asks, as cocotb tests."""

from typing import Any

import cocotb
from cocotb.task import bridge

from bench.peer import REMOTE_STAG, Peer
from bench.ports import Ports, SentFpdus
from bench.receive_cases import Placed
from bench.rig import READS, Bench, open_device, options, reach, report
from bench.stamps import steady
from host_driver import SGE, SendWR, WROpcode
from host_driver.enums import SendFlags
from sim.model.ddp import decode
from sim.model.rdmap import ReadRequest


@cocotb.test()
async def check_answer_reads(dut: Any) -> None:
    """FPDUs of Read Responses that leave, each at its last beat.

    Every QP has `READS` Read Requests outstanding: the next one is there when one is answered.
    With `after_write` each comes behind an RDMA Write of as many octets, which must be visible
    before the Read.
    """
    case = options()
    octets, total = case["octets"], case["messages"]
    device = await open_device(dut, case["read_latency"])
    sent = SentFpdus(device, case["markers"])
    made: list[Bench] = []

    def make() -> None:
        made.append(Bench(device, 2 * octets, case["emss"], case["qps"], markers=case["markers"]))

    await bridge(make)()
    (bench,) = made
    peers = {qp.qp_num: Peer(case["emss"], case["markers"]) for qp in bench.qps}
    asked = 0

    def ask(qp: int) -> bytes:
        nonlocal asked
        asked += 1
        mr, peer = bench.mr, peers[qp]
        fpdus = peer.write(mr.stag, mr.addr, bytes(octets)) if case["after_write"] else []
        return b"".join(fpdus + peer.read(mr.stag, mr.addr + octets, octets))

    def answered(connection: int, ulpdu: bytes) -> None:
        if sent.stamps[-1].messages and asked < total:
            device.llp.receive(connection, ask(connection))

    sent.on_ulpdu = answered
    for qp in peers:
        device.llp.receive(qp, b"".join(ask(qp) for _ in range(READS)))
    await reach(dut, "Reads answered", asked, lambda: sent.messages)
    await reach(dut, "Reads answered", total, lambda: sent.messages)
    report(steady(sent.stamps))


@cocotb.test()
async def check_ask_reads(dut: Any) -> None:
    """RDMA Reads of the device, `READS` of a QP outstanding, answered at once; what is placed."""
    case = options()
    octets, each = case["octets"], case["messages"] // case["qps"]
    device = await open_device(dut, case["read_latency"])
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
            octets * each * case["qps"],
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
    total = octets * each * case["qps"]
    await reach(dut, "octets placed", total, lambda: found[0].total)
    assert not any(buffers[0]), "host memory does not have what was read"
    report(steady(found[0].octets))


def _read(bench: Bench, address: int, octets: int) -> SendWR:
    return SendWR(
        opcode=WROpcode.RDMA_READ,
        sg=[SGE(address, octets, bench.mr.lkey)],
        send_flags=SendFlags(0),
        rkey=REMOTE_STAG,
    )
