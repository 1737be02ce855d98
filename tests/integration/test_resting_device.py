"""The compiled device does in each cycle what it would do if none of its blocks ever rested."""

import mmap
import random
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stagecoach.gateware.config import RnicConfig
from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    WC,
    Context,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendFlags,
    SendWR,
    WCStatus,
    WROpcode,
)
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.sim.build import SLOW, build_device, compile_verilog, export_verilog
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model.rdmap import Opcode
from stagecoach.sim.transport import SimulatedDevice
from tests.integration.rig import ALL, READS
from tests.integration.test_atomics import atomic_wr, random_request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

QPS = 6
REGION_OCTETS = 1 << 16
LONGEST_LOG2 = 13
QUEUED = 128
REQUESTS = 3
"""Most that a QP is given in a round."""

SETTLED_CYCLES = 520
"""After these a device sleeps for the first time: `kResetCycles + kSettle` of its runtime."""

SETUP_CYCLES = 100_000
"""Cycle in which the first requests are posted: more than it takes to make and connect the QPs."""

ROUND_CYCLES = 1500
ROUNDS = 40
QUIET_ROUNDS = 8
"""At the end: what was posted ends in them."""

STAG, OFFSET = 0x100, 0x5000_0000
"""STags of the regions are multiples of the one, and their Tagged Offsets begin at the other, so
that FPDUs are the same in every run."""

OPCODES = (
    WROpcode.RDMA_WRITE,
    WROpcode.RDMA_READ,
    WROpcode.SEND,
    WROpcode.IMM_DATA,
    WROpcode.RDMA_WRITE_WITH_IMM,
    WROpcode.ATOMIC_FETCH_AND_ADD,
)
UNTAGGED = (WROpcode.SEND, WROpcode.IMM_DATA)

OF_A_PROCESS = ("running_seconds", "cpu_seconds", "cycles_per_second", "sleeps")
"""Of the statistics what depends on the machine."""


class End:
    """A device and a program that does in given cycles what a generator of random numbers says.

    The last QP asks for what is forbidden in the middle of it, and its stream ends.
    """

    def __init__(self, library: Path, number: int, seed: int):
        self.device = SimulatedDevice(library=library, record=True, write_latency=40)
        self._number = number
        self._rng = random.Random(f"{number} {seed}")
        self.error: BaseException | None = None

    def run(self, step: socket.socket, streams: list[socket.socket]) -> None:
        """The program; the device is in step with the other one as long as it runs."""
        try:
            self.device.run_in_step(SocketStream(step))
            self._start(streams)
            self._run_until(SETUP_CYCLES)
            for turn in range(ROUNDS):
                for number, qp in enumerate(self._qps):
                    requests = self._requests(turn, number)
                    if requests:
                        qp.post_send(*requests)
                self._run_until(SETUP_CYCLES + (turn + 1) * ROUND_CYCLES)
            self.records = [
                (record.kind.name, record.connection, record.cycle, record.position, record.data)
                for record in self.device.take_records()
            ]
            statistics = self.device.statistics()
            self.counts = {
                name: value for name, value in statistics.items() if name not in OF_A_PROCESS
            }
        except BaseException as error:
            self.error = error
        finally:
            self.device.run_freely()  # else the other one would wait for this one

    def close(self) -> None:
        """Takes the completions and closes the device."""
        self.completions: list[WC] = self._cq.poll(1 << 20)
        self.content = [bytes(memory) for memory in self._memory]
        self._context.close()

    def _run_until(self, cycle: int) -> None:
        self.device.run_cycles(cycle - self.device.cycles)

    def _start(self, streams: list[socket.socket]) -> None:
        self._context = Context(self.device)
        pd = PD(self._context)
        self._cq = CQ(self._context, 2 * QUEUED * QPS)
        attributes = QPInitAttr(self._cq, self._cq, QPCap(QUEUED, QUEUED), rfc7306=True)
        self._qps = [QP(pd, attributes) for _ in range(QPS)]
        # Whole pages: a burst must not cross from one to the next, wherever they are.
        self._memory = [mmap.mmap(-1, REGION_OCTETS) for _ in range(QPS)]
        self._regions = [
            MR(pd, memory, ALL, addr=OFFSET + number, stag=STAG * (number + 1))
            for number, memory in enumerate(self._memory)
        ]
        for number, qp in enumerate(self._qps):
            self._memory[number][:] = self._rng.randbytes(REGION_OCTETS)
            receives = [RecvWR(at, [self._element(number, 8192)]) for at in range(QUEUED)]
            qp.post_recv(*receives)
            qp.connect(
                SocketStream(streams[number]),
                initiator=self._number == 0,
                crc=number % 3 != 1,
                ord=READS,
                ird=READS,
                emss=(1460, 8960)[number % 2],
                markers_tx=number % 4 == 3,
                markers_rx=number % 4 == 3,
            )

    def _element(self, number: int, octets: int) -> SGE:
        """Any octets of the region of a QP; that of the other end is at the same offset."""
        region = self._regions[number]
        start = self._rng.randrange(REGION_OCTETS - octets)
        return SGE(region.addr + start, octets, region.lkey)

    def _requests(self, turn: int, number: int) -> list[SendWR]:
        if number == QPS - 1 and turn >= ROUNDS // 2:
            forbidden = self._request(number, WROpcode.RDMA_WRITE)
            forbidden = replace(forbidden, rkey=forbidden.rkey + 1)
            return [forbidden] if turn == ROUNDS // 2 else []
        if turn >= ROUNDS - QUIET_ROUNDS:
            return []
        count = self._rng.randint(0, REQUESTS)
        return [self._request(number, self._rng.choice(OPCODES)) for _ in range(count)]

    def _request(self, number: int, opcode: WROpcode) -> SendWR:
        rng = self._rng
        key = self._regions[number].rkey
        if opcode == WROpcode.ATOMIC_FETCH_AND_ADD:  # or another atomic
            target = self._regions[number].addr + 8 * rng.randrange(REGION_OCTETS // 8)
            return atomic_wr(random_request(rng, key, target), self._element(number, 8))
        octets = 0 if opcode == WROpcode.IMM_DATA else int(2 ** rng.uniform(0, LONGEST_LOG2)) - 1
        remote = self._element(number, octets)
        return SendWR(
            opcode=opcode,
            sg=[self._element(number, octets)] if octets else [],
            send_flags=rng.choice((SendFlags.SIGNALED, SendFlags(0))),
            remote_addr=0 if opcode in UNTAGGED else remote.addr,
            rkey=0 if opcode in UNTAGGED else key,
            imm_data=rng.randbytes(8) if "IMM" in opcode.name else None,
        )


def run(library: Path, seed: int) -> list[End]:
    """Two devices that talk to each other, in cycles that are the same in every run."""
    ends = [End(library, number, seed) for number in range(2)]
    while any(end.device.cycles < SETTLED_CYCLES for end in ends):
        time.sleep(0.01)
    pairs = [socket.socketpair() for _ in range(1 + QPS)]
    threads = []
    for number, end in enumerate(ends):
        step, *streams = [pair[number] for pair in pairs]
        threads.append(threading.Thread(target=end.run, args=(step, streams)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for end in ends:
        if end.error is not None:
            raise end.error
        end.close()
    return ends


def test_everything_happens_in_the_same_cycle_as_without_rest():
    seed = seeded_random().getrandbits(32)
    config = RnicConfig()
    plain = compile_verilog(export_verilog(config), config.qps, level=SLOW)
    resting = build_device()
    assert plain != resting
    found, expected = run(resting, seed), run(plain, seed)
    for one, other in zip(found, expected, strict=True):
        for record, like in zip(one.records, other.records, strict=False):
            assert record == like
        assert len(one.records) == len(other.records) > 500
        assert one.counts == other.counts
        assert one.completions == other.completions
        assert one.content == other.content
    # What is to be seen was there: all operations, and an end of a stream by Terminate.
    completed = {wc.opcode for wc in expected[0].completions if wc.status == WCStatus.SUCCESS}
    assert len(completed) == 9, completed
    sent = {
        octets[3] & 0xF  # after the ULPDU length and DDP's control octet
        for end in expected
        for kind, connection, *_, octets in end.records
        if kind == "TRANSMIT" and connection == QPS - 1
    }
    assert Opcode.TERMINATE in sent
