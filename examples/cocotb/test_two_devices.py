"""Two RNICs joined back to back in one simulation, driven with the same verbs as any device."""

from dataclasses import replace
from typing import Any

import cocotb
import pytest
from cocotb.task import bridge

from stagecoach import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    CocotbDevice,
    Context,
    QPInitAttr,
    RecvWR,
    RnicConfig,
    RnicPair,
    SendWR,
    WCStatus,
    WROpcode,
    connect,
    listen,
    run_cocotb,
    start_pair,
)

OCTETS = 5000
ACCESS = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ


@pytest.mark.timeout(1800)  # the first run builds the simulator
def test_two_devices() -> None:
    pair = RnicPair(RnicConfig(qps=4, cqs=4, stags=16))
    run_cocotb(pair, __name__, waves=True, ports_only=True)


@cocotb.test(timeout_time=1, timeout_unit="ms")  # simulated time: 156,250 cycles
async def check_two_devices(dut: Any) -> None:
    device_a, device_b = await start_pair(dut)
    # Driver code blocks, so `bridge` gives each end a thread. The simulation stands still while
    # the driver computes: every run is the same.
    server = cocotb.start_soon(bridge(serve)(device_b))
    sent = await bridge(use)(device_a)
    assert await server == sent


def serve(device: CocotbDevice) -> bytes:
    with Context(device) as context:
        pd, cq = PD(context), CQ(context)
        qp = QP(pd, QPInitAttr(cq, cq))
        memory, message = MR(pd, bytearray(OCTETS), ACCESS), MR(pd, bytearray(64))
        qp.post_recv(RecvWR(wr_id=1, sg=[SGE(message.addr, 64, message.lkey)]))
        with listen(context, port=4791) as listener:
            where = memory.addr.to_bytes(8) + memory.rkey.to_bytes(4)
            listener.get_request().accept(qp, private_data=where)
        finish(cq)  # the message says that the Write before it has been placed
        assert message.buf[:4] == b"done"
        return bytes(memory.buf)


def use(device: CocotbDevice) -> bytes:
    with Context(device) as context:
        pd, cq = PD(context), CQ(context)
        qp = QP(pd, QPInitAttr(cq, cq))
        data = bytearray(index * 7 & 0xFF for index in range(OCTETS))
        source, sink = MR(pd, data), MR(pd, bytearray(OCTETS), ACCESS)
        message = MR(pd, bytearray(b"done"))
        where = connect(qp, "", 4791)
        write = SendWR(
            wr_id=1,
            opcode=WROpcode.RDMA_WRITE,
            sg=[SGE(source.addr, OCTETS, source.lkey)],
            remote_addr=int.from_bytes(where[:8]),
            rkey=int.from_bytes(where[8:]),
        )
        back = [SGE(sink.addr, OCTETS, sink.lkey)]
        qp.post_send(write, replace(write, wr_id=2, opcode=WROpcode.RDMA_READ, sg=back))
        finish(cq, 2)
        assert sink.buf == data  # what was written has been read back
        qp.post_send(SendWR(3, WROpcode.SEND, [SGE(message.addr, 4, message.lkey)]))
        finish(cq)
        return bytes(data)


def finish(cq: CQ, count: int = 1) -> None:
    for completion in cq.wait(count, timeout=300):  # real time
        assert completion.status == WCStatus.SUCCESS, completion
