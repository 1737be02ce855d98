"""The benchmark cases, as cocotb tests of one device.

Host memory answers reads after 250 cycles and writes after 50, at full bandwidth; the LLP is
always ready and has what is received at hand. Each case writes its figures to the file that the
parameter RESULT names.
"""

import time
from typing import Any

import cocotb
from cocotb.task import bridge
from cocotb.triggers import ClockCycles, with_timeout

from bench.rig import READS, Bench, first, open_device, parameter, report
from host_driver import SGE, SendWR, WROpcode
from sim.cosim.device import CLOCK_NS
from sim.model.ddp import segment_tagged, segment_untagged
from sim.model.mpa import frame_fpdu, mulpdu
from sim.model.rdmap import QN_READ_REQUEST, Opcode, ReadRequest, control_octet

WARM_UP_FPDUS = 20
"""FPDUs before the steady state: the latency of host memory is behind them."""

READ_OCTETS = 4096
"""Of each of the RDMA Reads that are answered."""

REMOTE_STAG = 0x12345678
IDLE_CYCLES = 3000
START_CYCLES = 5000
"""More than there are from the doorbell to the first FPDU."""


@cocotb.test()
async def check_write_tx(dut: Any) -> None:
    """One RDMA Write; payload octets per cycle of the FPDUs that leave."""
    octets, emss = parameter("OCTETS"), parameter("EMSS")
    device = await open_device(dut)
    stamps: list[tuple[int, int]] = []  # cycle of the last beat, payload octets

    def sent(connection: int, fpdu: bytes) -> None:
        stamps.append((device.llp.cycle, int.from_bytes(fpdu[:2], "big") - 14))

    device.llp.on_fpdu = sent
    started = time.perf_counter(), device.llp.cycle

    def run() -> None:
        bench = Bench(device, octets, emss)
        source = SGE(bench.mr.addr, octets, bench.mr.lkey)
        bench.qp.post_send(
            SendWR(1, WROpcode.RDMA_WRITE, [source], remote_addr=0, rkey=REMOTE_STAG)
        )
        bench.cq.wait(1, timeout=octets / 1000 + 5)

    await bridge(run)()
    assert sum(count for _, count in stamps) == octets
    steady = stamps[min(WARM_UP_FPDUS, len(stamps) // 2) :]
    payload = sum(count for _, count in steady[1:])
    cycles = steady[-1][0] - steady[0][0]
    report(
        {
            "payload_octets": payload,
            "cycles": cycles,
            "cycles_simulated": device.llp.cycle - started[1],
            "seconds": time.perf_counter() - started[0],
        }
    )


@cocotb.test()
async def check_speed(dut: Any) -> None:
    """Seconds that the simulator takes for CYCLES cycles of one RDMA Write, from its first FPDU on.

    The Python around the device is included: less than a tenth under Icarus.
    """
    octets, emss, cycles = parameter("OCTETS"), parameter("EMSS"), parameter("CYCLES")
    device = await open_device(dut)
    fpdus: list[int] = []  # octets

    def sent(connection: int, fpdu: bytes) -> None:
        fpdus.append(len(fpdu))

    device.llp.on_fpdu = sent

    def run() -> None:
        bench = Bench(device, octets, emss)
        source = SGE(bench.mr.addr, octets, bench.mr.lkey)
        bench.qp.post_send(
            SendWR(1, WROpcode.RDMA_WRITE, [source], remote_addr=0, rkey=REMOTE_STAG)
        )

    await bridge(run)()
    await with_timeout(first(fpdus, dut.clk), START_CYCLES * CLOCK_NS, "ns")
    before = len(fpdus)
    started = time.perf_counter(), device.llp.cycle
    await ClockCycles(dut.clk, cycles)
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


@cocotb.test()
async def check_write_rx(dut: Any) -> None:
    """A backlog of one RDMA Write; payload octets per cycle of what goes to host memory."""
    octets, emss = parameter("OCTETS"), parameter("EMSS")
    device = await open_device(dut)
    found: dict[str, Bench] = {}

    def make() -> None:
        found["bench"] = Bench(device, octets, emss)

    await bridge(make)()
    bench = found["bench"]
    payload = bytes(index * 7 & 0xFF for index in range(octets))
    ulpdus = segment_tagged(
        payload,
        stag=bench.mr.stag,
        tagged_offset=bench.mr.addr,
        mulpdu=mulpdu(emss, False),
        rsvd_ulp=control_octet(Opcode.RDMA_WRITE),
    )
    stream = b"".join(frame_fpdu(ulpdu) for ulpdu in ulpdus)
    axi = device.axi
    axi.first_write_cycle = None
    before = axi.words_written
    device.llp.receive(bench.qp.qp_num, stream)
    idle = 0
    last = axi.last_write_cycle
    while idle < IDLE_CYCLES:
        await ClockCycles(dut.clk, 100)
        idle = 0 if axi.last_write_cycle != last else idle + 100
        last = axi.last_write_cycle
    assert bench.buffer == payload
    assert axi.first_write_cycle is not None and axi.last_write_cycle is not None
    report(
        {
            "payload_octets": octets,
            "cycles": axi.last_write_cycle - axi.first_write_cycle + 1,
            "words": axi.words_written - before,
        }
    )


async def _answer_reads(dut: Any, *, writes: bool) -> None:
    """Read Requests, `READS` of them outstanding; payload octets per cycle of the FPDUs that leave.

    After each answer comes another Read Request; with `writes`, behind an RDMA Write of the same
    QP of as many octets.
    """
    octets, emss = parameter("OCTETS"), parameter("EMSS")
    device = await open_device(dut)
    found: dict[str, Bench] = {}
    stamps: list[tuple[int, int]] = []  # cycle of the last beat, payload octets
    asked = 0

    def make() -> None:
        found["bench"] = Bench(device, 2 * READ_OCTETS, emss)

    await bridge(make)()
    bench = found["bench"]
    source = bench.mr.addr + READ_OCTETS

    def ask() -> bytes:
        nonlocal asked
        asked += 1
        write = segment_tagged(
            bytes(READ_OCTETS),
            stag=bench.mr.stag,
            tagged_offset=bench.mr.addr,
            mulpdu=mulpdu(emss, False),
            rsvd_ulp=control_octet(Opcode.RDMA_WRITE),
        )
        request = segment_untagged(
            ReadRequest(REMOTE_STAG, 0, READ_OCTETS, bench.mr.stag, source).encode(),
            qn=QN_READ_REQUEST,
            msn=asked,
            mulpdu=mulpdu(emss, False),
            rsvd_ulp=control_octet(Opcode.RDMA_READ_REQUEST),
        )
        return b"".join(map(frame_fpdu, write + request if writes else request))

    def sent(connection: int, fpdu: bytes) -> None:
        stamps.append((device.llp.cycle, int.from_bytes(fpdu[:2], "big") - 14))
        if fpdu[2] & 0x40 and READ_OCTETS * asked < octets:  # L: the answer is complete
            device.llp.receive(bench.qp.qp_num, ask())

    device.llp.on_fpdu = sent
    device.llp.receive(bench.qp.qp_num, b"".join(ask() for _ in range(READS)))
    while sum(count for _, count in stamps) < octets:
        await ClockCycles(dut.clk, 100)
    steady = stamps[min(WARM_UP_FPDUS, len(stamps) // 2) :]
    report(
        {
            "payload_octets": sum(count for _, count in steady[1:]),
            "cycles": steady[-1][0] - steady[0][0],
        }
    )


@cocotb.test()
async def check_read_tx(dut: Any) -> None:
    """Answers to RDMA Reads alone."""
    await _answer_reads(dut, writes=False)


@cocotb.test()
async def check_read_after_write_tx(dut: Any) -> None:
    """Answers to RDMA Reads that come behind RDMA Writes, which must be visible before."""
    await _answer_reads(dut, writes=True)
