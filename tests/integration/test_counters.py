"""The counters of a device agree with what came and went on its connections."""

import json
import sys
from collections.abc import Iterator

import pytest

from stagecoach.cli.main import main
from stagecoach.host_driver import Cause, Context, QPState, SendWR, WROpcode
from stagecoach.host_driver.counters import QPCounters, query_lost, query_qp, query_stops
from stagecoach.sim.model.atomics import FETCH_ADD, AtomicRequest
from stagecoach.sim.model.ddp import decode
from stagecoach.sim.model.rdmap import Opcode, decode_control
from tests.integration.rig import End, RawPeer, open_device
from tests.integration.test_atomics import request_ulpdu, response_ulpdu
from tests.integration.test_failures import read, response, send, write

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device


@pytest.fixture
def context() -> Iterator[Context]:
    with open_device() as opened:
        yield opened


def test_fpdus_octets_and_messages_of_both_directions(context: Context):
    end, idle = End(context, 5000), End(context)
    peer = RawPeer(end.qp)
    arriving = [write(end.mr.rkey, end.mr.addr + 100 * n, bytes(n + 1)) for n in range(20)]
    arriving += [write(end.mr.rkey, end.mr.addr, bytes(8), last=False) for _ in range(3)]
    peer.send(*arriving)
    end.qp.post_send(
        SendWR(1, WROpcode.RDMA_WRITE, [end.element()], remote_addr=0, rkey=1),
        SendWR(2, WROpcode.SEND, [end.element(0, 10)]),
    )
    peer.pump_until(lambda: len(peer.ulpdus) == 5)
    peer.pump_until(lambda: context.fpdus_received >= len(arriving))
    counters = query_qp(context, end.qp.qp_num).counters
    assert len(peer.ulpdus) == 5
    assert counters == QPCounters(
        fpdus_sent=len(peer.ulpdus),
        octets_sent=sum(map(len, peer.ulpdus)),
        messages_sent=2,
        fpdus_received=len(arriving),
        octets_received=sum(map(len, arriving)),
        messages_received=20,
    )
    assert query_qp(context, idle.qp.qp_num).counters == QPCounters()
    assert (query_stops(context), query_lost(context)) == ({}, 0)
    assert context.fpdus_sent == counters.fpdus_sent
    peer.close()


def test_outstanding_reads_are_those_without_an_answer(context: Context):
    end = End(context, 300)
    peer = RawPeer(end.qp)
    element = end.element(0, 100)
    end.qp.post_send(
        *(SendWR(n, WROpcode.RDMA_READ, [element], remote_addr=0, rkey=1) for n in range(3))
    )
    peer.pump_until(lambda: len(peer.ulpdus) == 3)
    number = end.qp.qp_num
    assert query_qp(context, number).counters.outstanding_reads == 3
    headers = [decode(one)[0] for one in peer.ulpdus]
    assert {decode_control(one.rsvd_ulp).opcode for one in headers} == {Opcode.RDMA_READ_REQUEST}
    sink = end.mr.addr
    peer.send(
        response(end.mr.lkey, sink, bytes(100)),
        response(end.mr.lkey, sink, bytes(60), last=False),
        response(end.mr.lkey, sink + 60, bytes(40)),
    )
    peer.pump_until(lambda: context.fpdus_received == 3)
    assert [wc.wr_id for wc in end.cq.wait(2)] == [0, 1]
    assert query_qp(context, number).counters.outstanding_reads == 1
    # A QP that has stopped waits for none, nor does the next one with its number.
    peer.close()
    end.close()
    for _ in range(context.attr.max_qp):
        end = End(context, 300)
        if end.qp.qp_num == number:
            break
        end.close()
    assert end.qp.qp_num == number
    peer = RawPeer(end.qp)
    assert query_qp(context, number).counters.outstanding_reads == 0
    assert query_qp(context, number).counters.messages_sent == 3
    peer.close()


def test_answers_are_messages_and_atomics_are_outstanding(context: Context):
    end = End(context, 4000)
    peer = RawPeer(end.qp)
    requests = [read(end.mr.rkey, end.mr.addr, 3000, msn) for msn in (1, 2)]
    aligned = end.mr.addr + -end.mr.addr % 8
    add = AtomicRequest(FETCH_ADD, 7, end.mr.rkey, aligned, 1, 0, 0, 0)
    requests.append(request_ulpdu(3, add))
    peer.send(*requests)
    peer.pump_until(lambda: len(peer.ulpdus) == 3 + 3 + 1)
    element = end.element(0, 8)
    end.qp.post_send(
        SendWR(1, WROpcode.ATOMIC_FETCH_AND_ADD, [element], remote_addr=0, rkey=1, compare_add=1),
        SendWR(2, WROpcode.RDMA_READ, [element], remote_addr=0, rkey=1),
    )
    peer.pump_until(lambda: len(peer.ulpdus) == 9)
    number = end.qp.qp_num
    expected = QPCounters(
        fpdus_sent=9,
        octets_sent=sum(map(len, peer.ulpdus)),
        messages_sent=5,
        outstanding_reads=2,
        fpdus_received=3,
        octets_received=sum(map(len, requests)),
        messages_received=3,
    )
    assert query_qp(context, number).counters == expected
    header, payload = decode(peer.ulpdus[7])
    assert decode_control(header.rsvd_ulp).opcode == Opcode.ATOMIC_REQUEST
    peer.send(response_ulpdu(1, AtomicRequest.decode(payload).identifier, 5))
    assert [wc.wr_id for wc in end.cq.wait(1)] == [1]
    counters = query_qp(context, number).counters
    assert (counters.outstanding_reads, counters.messages_received) == (1, 4)
    peer.close()


def test_what_has_a_bad_crc_is_not_received(context: Context):
    end = End(context, 300)
    peer = RawPeer(end.qp)
    good = write(end.mr.rkey, end.mr.addr)
    bad = bytearray(peer.framer.frame(good))
    bad[-1] ^= 1
    peer.send_octets(peer.framer.frame(good) + bytes(bad) + peer.framer.frame(good))
    peer.pump_until(lambda: query_qp(context, end.qp.qp_num).state is QPState.ERR)
    counters = query_qp(context, end.qp.qp_num).counters
    assert (counters.fpdus_received, counters.octets_received) == (1, len(good))
    assert query_stops(context) == {Cause.CRC_ERROR: 1}
    peer.close()


def test_stops_and_drops_have_their_reason(context: Context):
    end = End(context, 300)
    peer = RawPeer(end.qp)
    # No receive is posted; what comes after it finds a QP that does not run.
    peer.send(send(), *(write(end.mr.rkey, end.mr.addr) for _ in range(4)))
    peer.pump_until(lambda: context.fpdus_received == 5)
    peer.pump_until(lambda: query_qp(context, end.qp.qp_num).state is QPState.ERR)
    assert query_qp(context, end.qp.qp_num).cause is Cause.UNTAGGED_NO_BUFFER
    assert query_stops(context) == {Cause.UNTAGGED_NO_BUFFER: 1, Cause.NONE: 4}
    peer.close()


PROGRAM = """
from stagecoach.host_driver import SendWR, WROpcode
from tests.integration.rig import End, RawPeer, open_device
with open_device() as context:
    end = End(context, 5000)
    peer = RawPeer(end.qp)
    write = SendWR(1, WROpcode.RDMA_WRITE, [end.element()], remote_addr=0, rkey=1)
    end.qp.post_send(write)
    peer.pump_until(lambda: len(end.cq.poll()) == 1)
    print("written")
"""


def test_top_shows_what_the_device_of_a_program_did(capfd):
    assert main(["top", "--once", "--json", "--", sys.executable, "-c", PROGRAM]) == 0
    out, err = capfd.readouterr()
    assert "written\n" in err
    (device,) = map(json.loads, out.splitlines())
    (qp,) = device["qps"]
    assert (qp["state"], qp["fpdus_sent"], qp["octets_sent"]) == ("RTS", 4, 5000 + 4 * 14)
    assert (qp["messages_sent"], device["open"]) == (1, False)
    assert device["total"]["octets_sent"] == 5056
    assert device["total"]["octets_sent_per_second"] > 0
