"""Two devices joined back to back in one deterministic simulation, driven through the verbs."""

import os
import random

import cocotb
from cocotb.task import bridge

from gateware.config import RnicConfig
from host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Context,
    QPInitAttr,
    RecvWR,
    SendWR,
    WCStatus,
    WROpcode,
    connect,
    listen,
)
from sim.cosim.device import CocotbDevice, start_clock
from sim.cosim.pair import RnicPair
from tests.support.runner import run_cocotb

ALL = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ


class End:
    """One end: an open device with a PD, a CQ, a QP and a registered buffer."""

    def __init__(self, device, octets):
        self.context = Context(device)
        self.pd = PD(self.context)
        self.cq = CQ(self.context)
        self.qp = QP(self.pd, QPInitAttr(self.cq, self.cq))
        self.buffer = bytearray(octets)
        self.mr = MR(self.pd, self.buffer, ALL)


def move(device_a, device_b, octets, seed):
    rng = random.Random(seed)
    a = End(device_a, octets)
    b = End(device_b, octets)
    a.buffer[:] = rng.randbytes(octets)
    b.qp.post_recv(RecvWR(7, [SGE(b.mr.addr, 64, b.mr.lkey)]))
    return a, b


async def open_pair(dut):
    await start_clock(dut)
    a, b = CocotbDevice(dut, "a_"), CocotbDevice(dut, "b_")
    a.start()
    b.start()
    a.join(b)
    return a, b


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_write_read_send(dut):
    device_a, device_b = await open_pair(dut)
    octets = int(os.environ.get("OCTETS", "20000"))

    def passive():
        end = End(device_b, octets)
        end.qp.post_recv(RecvWR(7, [SGE(end.mr.addr, 64, end.mr.lkey)]))
        with listen(end.context, port=1) as listener:
            request = listener.get_request()
            request.accept(end.qp, private_data=end.mr.addr.to_bytes(8) + end.mr.rkey.to_bytes(4))
        (completion,) = end.cq.wait(1)
        assert completion.status == WCStatus.SUCCESS, completion
        assert completion.byte_len == 64
        return end

    def active():
        end = End(device_a, octets)
        end.buffer[:] = random.Random(1).randbytes(octets)
        sink = bytearray(octets)
        sink_mr = MR(end.pd, sink, ALL)
        private = connect(end.qp, "", 1)
        addr, rkey = int.from_bytes(private[:8]), int.from_bytes(private[8:12])
        source = SGE(end.mr.addr, octets, end.mr.lkey)
        end.qp.post_send(SendWR(1, WROpcode.RDMA_WRITE, [source], remote_addr=addr, rkey=rkey))
        (completion,) = end.cq.wait(1)
        assert completion.status == WCStatus.SUCCESS, completion
        target = SGE(sink_mr.addr, octets, sink_mr.lkey)
        end.qp.post_send(SendWR(2, WROpcode.RDMA_READ, [target], remote_addr=addr, rkey=rkey))
        (completion,) = end.cq.wait(1)
        assert completion.status == WCStatus.SUCCESS, completion
        assert sink == end.buffer
        end.qp.post_send(SendWR(3, WROpcode.SEND, [SGE(end.mr.addr, 64, end.mr.lkey)]))
        (completion,) = end.cq.wait(1)
        assert completion.wr_id == 3
        return end

    task = cocotb.start_soon(bridge(passive)())
    end_a = await bridge(active)()
    end_b = await task
    assert bytes(end_b.buffer) == bytes(end_a.buffer)


def test_write_read_send():
    run_cocotb(RnicPair(RnicConfig(qps=4, cqs=4, stags=16)), __name__)
