"""Latencies of an idle device, as cocotb tests of one device.

Each message comes when the one before has been done with for `PAUSE_CYCLES`; the longest latency
counts.
"""

from typing import Any

import cocotb
from cocotb.task import bridge
from cocotb.triggers import ClockCycles

from bench.peer import Peer
from bench.ports import HostWrites, Ports
from bench.receive_cases import Placed
from bench.rig import Bench, open_device, options, reach, report
from bench.transmit_cases import requests
from stagecoach.host_driver import SGE, RecvWR
from stagecoach.host_driver.registers import SEND_DOORBELL

PAUSE_CYCLES = 700
"""More than prefetches of queue entries and write responses take."""

PITCH = 4096 + 8
"""Bytes between two buffers: each message begins at another place of its page."""


def _report(latencies: list[int], **more: int) -> None:
    report({"cycles": max(latencies), "messages": len(latencies), **more})


@cocotb.test()
async def check_first_write(dut: Any) -> None:
    """From the last byte of an RDMA Write's FPDU at the LLP port to its first word of payload."""
    case = options()
    device = await open_device(dut, case)
    made: list[Bench] = []
    await bridge(lambda: made.append(Bench(device, PITCH * case["messages"], case["emss"])))()
    (bench,) = made
    ports, peer = Ports(dut), Peer(case["emss"])
    received: list[int] = []
    ports.watch("llp__rx_", "", lambda: received.append(ports.cycle))
    placed = Placed(ports, bench, case["octets"])
    latencies: list[int] = []
    for number in range(case["messages"]):
        received.clear()
        placed.octets.clear()
        address = bench.mr.addr + number * PITCH
        fpdus = peer.write(bench.mr.stag, address, bytes(case["octets"]))
        device.llp.receive(bench.qp.qp_num, b"".join(fpdus))
        total = (number + 1) * case["octets"]
        await reach(dut, "bytes placed", total, lambda: placed.total)
        latencies.append(placed.octets[0].cycle - received[-1])
        await ClockCycles(dut.clk, PAUSE_CYCLES)
    _report(latencies)


@cocotb.test()
async def check_completion_write(dut: Any) -> None:
    """From the last write response of a Send's payload to the first word of its completion."""
    case = options()
    octets, count = case["octets"], case["messages"]
    device = await open_device(dut, case)
    made: list[Bench] = []

    def make() -> None:
        bench = Bench(device, PITCH * count, case["emss"], depth=count)
        for number in range(count):
            address = bench.mr.addr + number * PITCH
            bench.qp.post_recv(RecvWR(sg=[SGE(address, octets, bench.mr.lkey)]))
        made.append(bench)

    await bridge(make)()
    (bench,) = made
    ports, peer = Ports(dut), Peer(case["emss"])
    responses: list[int] = []
    ports.watch("m_axi__b", "", lambda: responses.append(ports.cycle))
    first_words: list[tuple[int, int]] = []  # last response before it, word of a completion
    ring = bench.cq._ring.address

    def written(address: int, strobe: int) -> None:
        if address >= ring and (address - ring) % 32 == 0 and address not in buffer:
            first_words.append((responses[-1], ports.cycle))

    buffer = range(bench.mr.host_address, bench.mr.host_address + len(bench.buffer))
    HostWrites(ports, written)
    for number in range(count):
        device.llp.receive(bench.qp.qp_num, b"".join(peer.send(bytes(octets))))
        await reach(dut, "completions", number + 1, lambda: len(first_words))
        await ClockCycles(dut.clk, PAUSE_CYCLES)
    _report([word - response for response, word in first_words])


@cocotb.test()
async def check_doorbell(dut: Any) -> None:
    """From the write of the send doorbell to the first bytes of the FPDU at the LLP port.

    The device sends the headers when it has the send entry, and the rest when it has the payload:
    `last_cycles` are those to the last byte.
    """
    case = options()
    device = await open_device(dut, case)
    ports = Ports(dut)
    doorbells: list[int] = []
    first_beats: list[int] = []
    last_beats: list[int] = []

    def written(address: int) -> None:
        if address == SEND_DOORBELL.address:
            doorbells.append(ports.cycle)

    def sent(first: int, last: int) -> None:
        if first:
            first_beats.append(ports.cycle)
        if last:
            last_beats.append(ports.cycle)

    ports.watch("s_axi__aw", "addr", written)
    ports.watch("llp__tx_", "first last", sent)

    def run() -> None:
        bench = Bench(device, max(case["octets"], 8), case["emss"], depth=case["messages"])
        for _ in range(case["messages"]):
            bench.qp.post_send(*requests(bench, "write", case["octets"], 1))
            device.run_cycles(2 * case["read_latency"] + 2 * PAUSE_CYCLES)

    await bridge(run)()
    assert len(last_beats) == len(doorbells) == case["messages"]
    first, last = (
        [beat - bell for bell, beat in zip(doorbells, beats, strict=True)]
        for beats in (first_beats, last_beats)
    )
    _report(first, last_cycles=max(last))
