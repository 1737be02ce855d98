"""A program for pyverbs, in the pattern of rdma-core's tests/test_rdmacm.py.

Two processes connect by the connection manager, first with calls that wait, then with events, and
exchange messages, an RDMA Write and an RDMA Read. Only its imports say that it is not pyverbs:

    python -m tests.integration.pyverbs_program PORT
"""

import multiprocessing
import sys
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

import stagecoach.pyverbs.cm_enums as ce
import stagecoach.pyverbs.enums as e
from stagecoach.pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from stagecoach.pyverbs.mr import MR
from stagecoach.pyverbs.qp import QPCap, QPInitAttr

HOST = "127.0.0.1"
SIZE = 1024
ROUNDS = 3
SECONDS = 60


@dataclass
class Shared:
    """What the two processes share: where they meet, and what one tells the other."""

    port: str
    meet: Barrier
    told: Queue


def attributes() -> QPInitAttr:
    return QPInitAttr(qp_type=e.IBV_QPT_RC, cap=QPCap(max_recv_wr=1))


def expect(channel: CMEventChannel, kind: int) -> CMEvent:
    """The next event, which has to be of that type."""
    event = CMEvent(channel)
    assert event.event_type == kind, event.event_str()
    return event


def exchange_messages(cmid: CMID, passive: bool, shared: Shared) -> None:
    """Each round one message goes from the active side to the passive one, and one back."""
    region = cmid.reg_msgs(SIZE)
    mine, its = ("s", "c") if passive else ("c", "s")
    for _ in range(ROUNDS):
        if passive:
            receive_one(cmid, region, its, shared)
            send_one(cmid, region, mine, shared)
        else:
            send_one(cmid, region, mine, shared)
            receive_one(cmid, region, its, shared)


def send_one(cmid: CMID, region: MR, letter: str, shared: Shared) -> None:
    region.write(SIZE * letter, SIZE)
    shared.meet.wait()  # the peer has posted its receive
    cmid.post_send(region)
    assert cmid.get_send_comp().status == e.IBV_WC_SUCCESS


def receive_one(cmid: CMID, region: MR, letter: str, shared: Shared) -> None:
    cmid.post_recv(region)
    shared.meet.wait()
    completion = cmid.get_recv_comp()
    assert (completion.status, completion.byte_len) == (e.IBV_WC_SUCCESS, SIZE)
    assert region.read(SIZE, 0).decode() == SIZE * letter


def reach_into_the_peer(cmid: CMID, passive: bool, shared: Shared) -> None:
    """The active side writes to one region of the passive one, and reads another."""
    if passive:
        written, read = cmid.reg_write(SIZE), cmid.reg_read(SIZE)
        read.write(SIZE * "r", SIZE)
        shared.told.put([(each.rkey, each.buf) for each in (written, read)])
        shared.meet.wait()
        assert written.read(SIZE, 0).decode() == SIZE * "w"
        return
    region = cmid.reg_msgs(SIZE)
    (to, at), (source, there) = shared.told.get(timeout=SECONDS)
    region.write(SIZE * "w", SIZE)
    cmid.post_write(region, SIZE, at, to, flags=e.IBV_SEND_SIGNALED)
    assert cmid.get_send_comp().status == e.IBV_WC_SUCCESS
    cmid.post_read(region, SIZE, there, source, flags=e.IBV_SEND_SIGNALED)
    assert cmid.get_send_comp().opcode == e.IBV_WC_RDMA_READ
    assert region.read(SIZE, 0).decode() == SIZE * "r"
    shared.meet.wait()


def address(passive: bool, port: str) -> AddrInfo:
    if passive:
        return AddrInfo(src=HOST, src_service=port, port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE)
    return AddrInfo(src=HOST, dst=HOST, dst_service=port, port_space=ce.RDMA_PS_TCP)


def by_calls(passive: bool, shared: Shared) -> None:
    """A connection by calls that wait."""
    with CMID(creator=address(passive, shared.port), qp_init_attr=attributes()) as cmid:
        if passive:
            cmid.listen()
            shared.meet.wait()
            child = cmid.get_request()
            child.accept()
        else:
            shared.meet.wait()
            child = cmid
            child.connect()
        exchange_messages(child, passive, shared)
        child.disconnect()
        child.close()


def by_events(passive: bool, shared: Shared) -> None:
    """A connection by events."""
    channel = CMEventChannel()
    with CMID(creator=channel, port_space=ce.RDMA_PS_TCP) as cmid:
        if passive:
            cmid.bind_addr(address(passive, shared.port))
            cmid.listen()
            shared.meet.wait()
            request = expect(channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
            child = CMID(creator=request, listen_id=cmid)
            request.ack_cm_event()
            child.create_qp(attributes())
            child.accept(ConnParam())
        else:
            child = cmid
            shared.meet.wait()
            child.resolve_addr(address(passive, shared.port))
            expect(channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED).ack_cm_event()
            child.resolve_route()
            expect(channel, ce.RDMA_CM_EVENT_ROUTE_RESOLVED).ack_cm_event()
            child.create_qp(attributes())
            child.connect(ConnParam())
        expect(channel, ce.RDMA_CM_EVENT_ESTABLISHED).ack_cm_event()
        exchange_messages(child, passive, shared)
        reach_into_the_peer(child, passive, shared)
        if passive:
            child.disconnect()
        expect(channel, ce.RDMA_CM_EVENT_DISCONNECTED).ack_cm_event()
        child.close()


def run(passive: bool, shared: Shared) -> None:
    by_calls(passive, shared)
    by_events(passive, shared)


def main() -> int:
    context = multiprocessing.get_context("fork")
    shared = Shared(sys.argv[1], context.Barrier(2, timeout=SECONDS), context.Queue())
    ends = [context.Process(target=run, args=(passive, shared)) for passive in (True, False)]
    for end in ends:
        end.start()
    for end in ends:
        end.join()
    return int(any(end.exitcode for end in ends))


if __name__ == "__main__":
    sys.exit(main())
