"""RDMA Writes in both directions at once, as a cocotb test of one device."""

from typing import Any

import cocotb
from cocotb.task import bridge

from bench.peer import Peer
from bench.ports import Ports, SentFpdus
from bench.receive_cases import Placed
from bench.rig import Bench, open_device, options, reach, report
from bench.stamps import between, bounds
from bench.transmit_cases import requests


@cocotb.test()
async def check_duplex(dut: Any) -> None:
    """Bytes that leave and that are placed, summed, while both directions are busy."""
    case = options()
    octets, count = case["octets"], case["messages"]
    device = await open_device(dut, case)
    sent = SentFpdus(device)
    ports = Ports(dut)
    found: list[Placed] = []
    payload = bytes(index * 7 & 0xFF for index in range(octets)) * count

    def run() -> None:
        bench = Bench(device, len(payload), case["emss"], depth=count)
        found.append(Placed(ports, bench, octets))
        peer = Peer(case["emss"])
        fpdus: list[bytes] = []
        for at in range(0, len(payload), octets):
            fpdus += peer.write(bench.mr.stag, bench.mr.addr + at, payload[at : at + octets])
        device.llp.receive(bench.qp.qp_num, b"".join(fpdus))
        bench.qp.post_send(*requests(bench, "write", octets, count))
        buffers.append(bench.buffer)

    buffers: list[bytearray] = []
    await bridge(run)()
    (placed,) = found
    await sent.reach(dut, count)
    await reach(dut, "bytes placed", len(payload), lambda: placed.total)
    assert buffers[0] == payload, "host memory does not have what was sent"
    windows = [bounds(sent.stamps), bounds(placed.octets)]
    begin, end = max(begin for begin, _ in windows), min(end for _, end in windows)
    report(between([sent.stamps, placed.octets], begin, end))
