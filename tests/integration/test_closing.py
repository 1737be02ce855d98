"""How connections end over TCP: with FIN, after all that was sent, and with nothing after it."""

import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stagecoach.host_driver import (
    Cause,
    Context,
    QPState,
    RecvWR,
    SendFlags,
    SendWR,
    WCStatus,
    WROpcode,
)
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model import ddp, mpa, rdmap
from stagecoach.sim.model.ddp import TaggedHeader
from stagecoach.sim.model.rdmap import Opcode, control_octet
from tests.integration.rig import End, RawPeer, open_device

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device

SECONDS = 10.0
PATIENCE = 100.0
DATA_SEGMENTS_IN = 152
"""Offset of tcpi_data_segs_in in struct tcp_info of Linux."""


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device() as opened:
        yield opened


def receive_to_the_end(peer: RawPeer) -> list[bytes]:
    """The ULPDUs up to the FIN of the device; a reset is an error."""
    peer.socket.setblocking(True)
    peer.socket.settimeout(PATIENCE)
    deframer, ulpdus = mpa.Deframer(), list[bytes]()
    while octets := peer.socket.recv(1 << 16):
        ulpdus += deframer.feed(octets)
    return ulpdus


def opcodes(ulpdus: list[bytes]) -> list[int]:
    return [rdmap.decode_control(ddp.decode(ulpdu)[0].rsvd_ulp).opcode for ulpdu in ulpdus]


@pytest.mark.requirement("RDMAP-6.2-01", "MPA-7.2-01")
def test_disconnecting_closes_behind_what_was_completed_and_tells_no_error(context: Context):
    end = End(context, 1 << 16)
    peer = RawPeer(end.qp, tcp=True)
    end.qp.post_recv(RecvWR(9))
    end.qp.post_send(*(SendWR(n, WROpcode.RDMA_WRITE, [end.element()]) for n in range(3)))
    assert [wc.wr_id for wc in end.cq.wait(3, SECONDS)] == [0, 1, 2]
    end.qp.disconnect()
    assert [(wc.wr_id, wc.status) for wc in end.cq.poll()] == [(9, WCStatus.WR_FLUSH_ERR)]
    ulpdus = receive_to_the_end(peer)
    assert set(opcodes(ulpdus)) == {Opcode.RDMA_WRITE}
    assert sum(len(ddp.decode(ulpdu)[1]) for ulpdu in ulpdus) == 3 * len(end.buffer)
    end.close()
    peer.close()


@pytest.mark.requirement("DDP-6.2.1-01", "RDMAP-6.2-01")
@pytest.mark.parametrize("signaled", [True, False], ids=["signaled", "silent"])
def test_a_graceful_end_closes_behind_all_that_was_posted(context: Context, signaled: bool):
    end = End(context, 1 << 13)
    end.buffer[:] = seeded_random().randbytes(len(end.buffer))
    peer = RawPeer(end.qp, tcp=True)
    flags = SendFlags.SIGNALED if signaled else SendFlags(0)
    writes = 15
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(receive_to_the_end, peer)
        end.qp.post_send(
            *(SendWR(n, WROpcode.RDMA_WRITE, [end.element()], flags) for n in range(writes))
        )
        end.qp.disconnect(drain=PATIENCE)
        ulpdus = found.result()
    completions = [(wc.wr_id, wc.status) for wc in end.cq.poll()]
    assert completions == [(n, WCStatus.SUCCESS) for n in range(writes if signaled else 0)]
    assert set(opcodes(ulpdus)) == {Opcode.RDMA_WRITE}
    assert b"".join(ddp.decode(ulpdu)[1] for ulpdu in ulpdus) == writes * bytes(end.buffer)
    end.close()
    peer.close()


@pytest.mark.requirement("DDP-6.2.1-02")
def test_what_is_posted_after_disconnecting_ends_in_error_and_is_not_sent(context: Context):
    end = End(context)
    peer = RawPeer(end.qp, tcp=True)
    end.qp.disconnect()
    end.qp.post_send(SendWR(1, WROpcode.RDMA_WRITE, [end.element()]), SendWR(2))
    end.qp.post_recv(RecvWR(3))
    assert [(wc.wr_id, wc.status) for wc in end.cq.wait(3, SECONDS)] == [
        (number, WCStatus.WR_FLUSH_ERR) for number in (1, 2, 3)
    ]
    assert receive_to_the_end(peer) == []
    end.close()
    peer.close()


@pytest.mark.requirement("DDP-3-11", "DDP-6.2.1-05", "MPA-7.2-02")
def test_the_other_half_is_closed_gracefully_when_the_peer_has_closed_its_own(context: Context):
    end = End(context)
    peer = RawPeer(end.qp, tcp=True)
    peer.socket.shutdown(socket.SHUT_WR)
    context.poll_until(lambda: end.qp.state == QPState.ERR, SECONDS, "the end of the stream")
    assert end.qp.cause == Cause.LLP_CLOSED
    end.qp.disconnect()
    assert receive_to_the_end(peer) == []
    end.close()
    peer.close()


@pytest.mark.requirement("RDMAP-5.4-08", "RDMAP-6.2.1-04")
def test_a_terminate_is_not_lost_by_what_comes_behind_the_offence(context: Context):
    end = End(context)
    peer = RawPeer(end.qp, tcp=True)
    bad = TaggedHeader(end.mr.rkey ^ 1, end.mr.addr, rsvd_ulp=control_octet(Opcode.RDMA_WRITE))
    ulpdu = bad.encode() + bytes(1000)
    octets = b"".join(peer.framer.frame(ulpdu) for _ in range(100))
    peer.socket.sendall(octets)
    context.poll_until(lambda: end.qp.state == QPState.ERR, SECONDS, "the error")
    # Closing a socket with octets that nobody has read would reset the connection.
    peer.socket.sendall(octets)
    time.sleep(0.1)
    assert opcodes(receive_to_the_end(peer)) == [Opcode.TERMINATE]
    end.close()
    peer.close()


@pytest.mark.requirement("MPA-5.1-03", "MPA-4.5-04")
@pytest.mark.parametrize("emss", [536, 1460])
def test_tcp_segments_begin_where_fpdus_do(context: Context, emss: int):
    """One TCP segment for each FPDU, as long as none has to wait in the kernel."""
    payload = mpa.mulpdu(emss) - 14
    end = End(context, 3 * payload + 100)
    peer = RawPeer(end.qp, tcp=True, emss=emss)
    for number in range(25):
        end.qp.post_send(SendWR(number, WROpcode.RDMA_WRITE, [end.element()]))
        peer.pump_until(lambda count=4 * number + 4: len(peer.ulpdus) == count, SECONDS)
    lengths = [len(ddp.decode(ulpdu)[1]) for ulpdu in peer.ulpdus]
    assert lengths == 25 * [payload, payload, payload, 100]
    info = peer.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    (segments,) = struct.unpack_from("I", info, DATA_SEGMENTS_IN)
    # The kernel may send a segment twice, or two as one.
    assert 0.9 * len(lengths) <= segments <= 1.1 * len(lengths)
    end.close()
    peer.close()
