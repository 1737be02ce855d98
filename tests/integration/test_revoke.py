"""Closing a memory region under traffic: after close() the device leaves the buffer alone."""

import random
import socket
from collections.abc import Iterator

import pytest

from stagecoach.host_driver import (
    MR,
    SGE,
    AccessFlags,
    Cause,
    Context,
    QPState,
    RecvWR,
    SendWR,
    WCStatus,
    WROpcode,
)
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, control_octet
from stagecoach.sim.transport import SimulatedDevice
from tests.integration.rig import ALL, OPCODES, READS, End, RawPeer, open_device

OCTETS = 1 << 18
REQUESTS = 8
ROUNDS = 10
SECONDS = 20.0
LONGEST_WAIT = 30_000
AFTERWARDS = 3_000
"""Cycles in which a late access would come: some times the latency of the host memory."""
OLD, NEW = 0x11, 0xEE


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device() as context:
        yield context


class Link:
    """Two connected QPs of one device, each with a buffer that is mapped for another reason too.

    Without that the host memory would refuse a late access, and nothing would be seen of it.
    """

    def __init__(self, context: Context, rng: random.Random):
        self.context = context
        self.active, self.passive = End(context, OCTETS), End(context, OCTETS)
        self.ends = (self.active, self.passive)
        self._mapped = [MR(end.pd, end.buffer) for end in self.ends]
        ours, theirs = socket.socketpair()
        options = {"crc": True, "ord": READS, "ird": READS, "emss": rng.choice([536, 1460, 65483])}
        self.passive.qp.connect(SocketStream(ours), initiator=False, **options)
        self.active.qp.connect(SocketStream(theirs), initiator=True, **options)

    def post(self, opcode: WROpcode) -> None:
        """Keeps the active QP busy for longer than the test waits."""
        if opcode == WROpcode.SEND:
            self.passive.qp.post_recv(
                *(RecvWR(n, [self.passive.element()]) for n in range(REQUESTS))
            )
        target = {"remote_addr": self.passive.mr.addr, "rkey": self.passive.mr.rkey}
        element = SGE(self.active.mr.addr, OCTETS, self.active.mr.lkey)
        self.active.qp.post_send(*(SendWR(n, opcode, [element], **target) for n in range(REQUESTS)))

    def run(self, cycles: int) -> None:
        transport = self.context.transport
        assert isinstance(transport, SimulatedDevice)
        transport.run_cycles(cycles)

    def wait_stopped(self, end: End) -> None:
        self.context.poll_until(lambda: end.qp.state == QPState.ERR, SECONDS, "the error")

    def close(self) -> None:
        for end in self.ends:
            end.qp.close()
            end.mr.close()
            end.cq.close()
        for region in self._mapped:
            region.close()


@pytest.mark.requirement("RDMAP-3.2-04", "RDMAP-8.1.1-04", "RDMAP-8.1.1-05", "RDMAP-8.1.1-06")
@pytest.mark.requirement("DDP-8.3-01", "DDP-8.3-02", "DDP-8.3.1-05", "DDP-8.3.1-06", "DDP-8.3.1-07")
@pytest.mark.requirement("SEC-6.2.2-01", "RPCRDMA-11-03")
@pytest.mark.parametrize("opcode", OPCODES)
def test_no_octet_changes_after_close(opcode: WROpcode, context: Context):
    """The region of the Data Sink is closed."""
    rng = seeded_random(opcode.name)
    causes = {
        WROpcode.RDMA_WRITE: {Cause.TAGGED_STAG_INVALID},
        # Either the next request or the next answer finds the STag gone.
        WROpcode.RDMA_READ: {Cause.TAGGED_STAG_INVALID, Cause.LOCAL_SEND_PROTECTION},
        WROpcode.SEND: {Cause.LOCAL_RECEIVE_PROTECTION},
    }[opcode]
    cut = 0
    for number in range(ROUNDS):
        link = Link(context, rng)
        sink, source = link.passive, link.active
        if opcode == WROpcode.RDMA_READ:
            sink, source = source, sink
        source.buffer[:] = bytes([NEW]) * OCTETS
        link.post(opcode)
        link.run(rng.randrange(LONGEST_WAIT))
        sink.mr.close()
        after = bytes(sink.buffer)
        link.run(AFTERWARDS)
        assert sink.buffer == after, f"round {number}"
        link.wait_stopped(sink)
        link.wait_stopped(source)
        assert sink.buffer == after, f"round {number}"
        assert sink.qp.query_state() == (QPState.ERR, sink.qp.cause)
        assert sink.qp.cause in causes, f"round {number}"
        assert source.qp.cause == Cause.TERMINATE_RECEIVED
        cut += NEW in after and 0 in after
        statuses = [wc.status for wc in link.active.cq.wait(REQUESTS, SECONDS)]
        assert statuses[-1] == WCStatus.WR_FLUSH_ERR
        link.close()
    assert cut, "no region was closed in the midst of a message"


@pytest.mark.requirement("RDMAP-7.2-09", "RDMAP-8.1.1-04", "RDMAP-8.1.1-05", "DDP-8.3-02")
@pytest.mark.requirement("DDP-8.3.1-05", "DDP-8.3.1-06", "RPCRDMA-11-03")
@pytest.mark.parametrize("opcode", OPCODES)
def test_no_octet_is_read_after_close(opcode: WROpcode, context: Context):
    """The region of the Data Source is closed; what is written to the buffer then is not sent."""
    rng = seeded_random(opcode.name)
    causes = {Cause.LOCAL_SEND_PROTECTION}
    if opcode == WROpcode.RDMA_READ:
        causes = {Cause.READ_STAG_INVALID}
    for number in range(ROUNDS):
        link = Link(context, rng)
        sink, source = link.passive, link.active
        if opcode == WROpcode.RDMA_READ:
            sink, source = source, sink
        source.buffer[:] = bytes([OLD]) * OCTETS
        link.post(opcode)
        link.run(rng.randrange(LONGEST_WAIT))
        source.mr.close()
        source.buffer[:] = bytes([NEW]) * OCTETS
        link.wait_stopped(source)
        link.wait_stopped(sink)
        link.run(AFTERWARDS)
        assert NEW not in sink.buffer, f"round {number}"
        assert source.qp.cause in causes, f"round {number}"
        # The FPDU that was under way may have been spoilt.
        assert sink.qp.cause in (Cause.TERMINATE_RECEIVED, Cause.CRC_ERROR), f"round {number}"
        link.close()


def test_close_beside_traffic_of_others(context: Context):
    """Regions come and go while a QP of the same device is busy; nothing happens to it."""
    rng = seeded_random()
    link = Link(context, rng)
    link.active.buffer[:] = rng.randbytes(OCTETS)
    link.post(WROpcode.RDMA_WRITE)
    for _ in range(40):
        region = MR(link.passive.pd, bytearray(100), ALL)
        link.run(rng.randrange(1000))
        region.close()
    completions = link.active.cq.wait(REQUESTS, SECONDS)
    assert [wc.status for wc in completions] == [WCStatus.SUCCESS] * REQUESTS
    link.context.poll_until(
        lambda: link.passive.buffer == link.active.buffer, SECONDS, "the last octets"
    )
    link.close()


@pytest.mark.requirement("RDMAP-8.1.1-06", "SEC-6.2.2-01")
def test_no_octet_is_read_when_the_peer_has_invalidated_the_stag():
    """The memory is so slow that its octets are on their way when the Send is delivered."""
    with open_device(read_latency=20_000, write_latency=50) as context:
        end = End(context, 64)
        peer = RawPeer(end.qp)
        for msn in range(1, 4):
            buffer = bytearray(b"\x11" * 8192)
            mr = MR(end.pd, buffer, AccessFlags.REMOTE_READ, qp=end.qp)
            end.qp.post_recv(RecvWR(msn))
            read = ReadRequest(7, 0, len(buffer), mr.rkey, mr.addr)
            control = control_octet(Opcode.RDMA_READ_REQUEST)
            peer.send(UntaggedHeader(1, msn, rsvd_ulp=control).encode() + read.encode())
            peer.wait_taken()
            device = context.transport
            assert isinstance(device, SimulatedDevice)
            start = device.info["cycles"]
            while device.info["cycles"] < start + 2000:
                pass
            control = control_octet(Opcode.SEND_WITH_INVALIDATE)
            header = UntaggedHeader(0, msn, rsvd_ulp=control, rsvd_ulp_word=mr.rkey)
            peer.send(header.encode())
            (completion,) = end.cq.wait(1, timeout=SECONDS)
            assert completion.invalidated_rkey == mr.rkey
            buffer[:] = b"\x99" * len(buffer)
            # What had not begun by then is refused, which ends the stream.
            peer.pump_until(lambda: peer.ended or ends_read(peer.ulpdus), SECONDS)
            assert not any(b"\x99" * 8 in ulpdu for ulpdu in peer.ulpdus)
            if peer.ended:
                break
            peer.ulpdus.clear()
        end.qp.close()
        peer.close()


def ends_read(ulpdus: list[bytes]) -> bool:
    """Whether the last segment of a Read Response is there."""
    return any(ulpdu[0] & 0xC0 == 0xC0 for ulpdu in ulpdus)
