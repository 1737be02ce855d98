"""A shared receive queue of the whole device: who gets which buffer, and what a QP leaves."""

from collections.abc import Iterator

import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    SRQ,
    WC,
    Cause,
    Context,
    EventType,
    QPCap,
    QPInitAttr,
    RecvWR,
    SRQInitAttr,
    WaitTimeout,
    WCStatus,
)
from stagecoach.sim.cosim.streams import seeded_random
from tests.integration.rig import ALL, RawPeer, open_device
from tests.integration.test_failures import SECONDS, send

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device

SIZE = 1024
BUFFERS = 200


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device() as opened:
        yield opened


class Rig:
    """An SRQ with its buffers, and QPs that take from it, each with a raw peer."""

    def __init__(self, context: Context, qps: int, max_wr: int = 16):
        self.context = context
        self.pd = PD(context)
        self.cq = CQ(context)
        self.buffer = bytearray(BUFFERS * SIZE)
        self.mr = MR(self.pd, self.buffer, ALL)
        self.srq = SRQ(self.pd, SRQInitAttr(max_wr))
        self.qps: list[QP] = []
        self.peers: list[RawPeer] = []
        for _ in range(qps):
            self.add()
        context.events.clear()

    def add(self) -> QP:
        """One more QP."""
        attr = QPInitAttr(self.cq, self.cq, QPCap(max_send_wr=1), srq=self.srq)
        self.qps.append(QP(self.pd, attr))
        self.peers.append(RawPeer(self.qps[-1]))
        return self.qps[-1]

    def post(self, *numbers: int) -> None:
        """Posts these buffers, two elements each."""
        half = SIZE // 2
        self.srq.post_recv(
            *(
                RecvWR(
                    n, [SGE(self.mr.addr + at, half, self.mr.lkey) for at in (begin, begin + half)]
                )
                for n, begin in ((n, n * SIZE) for n in numbers)
            )
        )

    def wait(self, count: int) -> list[tuple[int, int, int]]:
        """Place of the QP, buffer and length of so many messages, in the order they came."""
        places = {qp.qp_num: place for place, qp in enumerate(self.qps)}
        found = self.cq.wait(count, SECONDS)
        assert all(wc.status == WCStatus.SUCCESS for wc in found), found
        return [(places[wc.qp_num], wc.wr_id, wc.byte_len) for wc in found]

    def flushed(self) -> list[WC]:
        return [wc for wc in self.cq.poll(64) if wc.status != WCStatus.SUCCESS]

    def content(self, number: int, length: int) -> bytes:
        return bytes(self.buffer[number * SIZE : number * SIZE + length])

    def wait_event(self, event_type: EventType) -> None:
        """Waits for an event of that type, and drops those before it."""
        while self.context.get_async_event(SECONDS).event_type != event_type:
            pass

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        for qp in self.qps:
            qp.close()
        self.srq.close()
        self.mr.close()
        self.cq.close()
        self.pd.close()
        self.context.events.clear()


@pytest.fixture
def rig(context: Context) -> Iterator[Rig]:
    rig = Rig(context, 3)
    yield rig
    rig.close()


def test_a_message_keeps_its_buffer_while_others_take_theirs(rig: Rig):
    """Segments of three QPs by turns; buffers go in the order of the first segments."""
    rng = seeded_random()
    rig.post(*range(4))
    messages = [rng.randbytes(length) for length in (900, 700, 80)]
    first, second, third = rig.peers

    def part(place: int, begin: int, end: int) -> bytes:
        last = end == len(messages[place])
        return send(messages[place][begin:end], mo=begin, last=last)

    for peer, ulpdu in (
        (second, part(1, 0, 300)),
        (first, part(0, 0, 600)),
        (third, part(2, 0, 80)),
        (first, part(0, 600, 640)),
        (second, part(1, 300, 700)),
        (first, part(0, 640, 900)),
    ):
        peer.send(ulpdu)
        peer.wait_taken()
    assert rig.wait(3) == [(2, 2, 80), (1, 0, 700), (0, 1, 900)]
    for place, number in ((0, 1), (1, 0), (2, 2)):
        assert rig.content(number, len(messages[place])) == messages[place]
    first.send(send(b"next", msn=2))
    assert rig.wait(1) == [(0, 3, 4)]


@pytest.mark.requirement("RDMAP-8.1.2-08", "DDP-8.3.2-06", "SEC-6.4.3.1-01")
def test_the_limit_tells_once_that_buffers_run_low(rig: Rig):
    rig.post(*range(6))
    rig.srq.modify(srq_limit=4)
    for msn in (1, 2):
        rig.peers[0].send(send(b"x", msn=msn))
    rig.wait(2)
    with pytest.raises(WaitTimeout):
        rig.context.get_async_event(0)
    rig.peers[1].send(send(b"x"), send(b"x", msn=2))
    rig.wait(2)
    rig.wait_event(EventType.SRQ_LIMIT_REACHED)
    with pytest.raises(WaitTimeout):
        rig.context.get_async_event(0)
    assert rig.srq.query().srq_limit == 0
    # There are two: an event at once, and none if they are enough.
    rig.srq.modify(srq_limit=3)
    rig.wait_event(EventType.SRQ_LIMIT_REACHED)
    rig.srq.modify(srq_limit=2)
    with pytest.raises(WaitTimeout):
        rig.context.get_async_event(0)
    rig.peers[2].send(send(b"x"))
    rig.wait_event(EventType.SRQ_LIMIT_REACHED)


def test_an_empty_queue_stops_the_qp_that_needs_a_buffer_and_no_other(rig: Rig):
    rig.post(0)
    first, second, third = rig.peers
    second.send(send(b"only"))
    assert rig.wait(1) == [(1, 0, 4)]
    first.send(send(b"none"))
    rig.wait_event(EventType.QP_LAST_WQE_REACHED)
    assert rig.qps[0].cause == Cause.UNTAGGED_NO_BUFFER
    rig.post(1, 2)
    third.send(send(b"third"))
    second.send(send(b"more", msn=2))
    assert sorted((place, length) for place, _, length in rig.wait(2)) == [(1, 4), (2, 5)]
    assert not rig.flushed()


def test_a_qp_that_stops_flushes_its_buffer_alone(rig: Rig):
    rig.post(*range(3))
    first, second, _ = rig.peers
    first.send(send(b"begins", last=False))
    first.wait_taken()
    second.send(send(b"whole"))
    assert rig.wait(1) == [(1, 1, 5)]
    first.close()
    rig.wait_event(EventType.QP_LAST_WQE_REACHED)
    (flushed,) = rig.flushed()
    assert (flushed.wr_id, flushed.qp_num) == (0, rig.qps[0].qp_num)
    assert flushed.status == WCStatus.WR_FLUSH_ERR
    second.send(send(b"again", msn=2))
    assert rig.wait(1) == [(1, 2, 5)]


def test_a_bad_element_stops_the_qp_that_took_it_and_is_used_up(rig: Rig):
    rig.srq.post_recv(RecvWR(77, [SGE(rig.mr.addr, SIZE, rig.mr.lkey ^ 1)]))
    rig.post(1)
    rig.peers[0].send(send(b"bad"))
    rig.wait_event(EventType.QP_LAST_WQE_REACHED)
    assert rig.qps[0].cause == Cause.LOCAL_RECEIVE_PROTECTION
    (failed,) = rig.flushed()
    assert (failed.wr_id, failed.status) == (77, WCStatus.LOC_PROT_ERR)
    rig.peers[1].send(send(b"good"))
    assert rig.wait(1) == [(1, 1, 4)]


def test_a_qp_comes_and_goes_and_the_queue_stays(rig: Rig):
    """Also one with a receive queue, and the number that was that of the first one."""
    rig.post(*range(3))
    rig.peers[0].send(send(b"one"))
    assert rig.wait(1) == [(0, 0, 3)]
    rig.peers[0].close()
    rig.qps[0].close()
    own = QP(rig.pd, QPInitAttr(rig.cq, rig.cq))
    own.close()
    rig.add()
    rig.peers[-1].send(send(b"two"))
    rig.peers[1].send(send(b"three"))
    assert sorted(length for _, _, length in rig.wait(2)) == [3, 5]


def test_64_qps_take_by_turns_and_none_starves(context: Context):
    turns = 3
    rig = Rig(context, context.attr.max_qp, max_wr=BUFFERS)
    rig.post(*range(turns * len(rig.qps)))
    for turn in range(turns):
        for place, peer in enumerate(rig.peers):
            peer.send_octets(peer.framer.frame(send(bytes([turn, place]), msn=turn + 1)))
    found = rig.wait(turns * len(rig.qps))
    got = [(place, rig.content(number, 2)) for place, number, _ in found]
    for place in range(len(rig.qps)):
        mine = [content for each, content in got if each == place]
        assert mine == [bytes([turn, place]) for turn in range(turns)]
    rig.close()
