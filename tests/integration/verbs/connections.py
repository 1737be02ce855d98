"""How connections begin, and how they end."""

import pytest

from stagecoach.host_driver import (
    Cause,
    ConnectionRejected,
    ListenerClosed,
    QPState,
    QPStateError,
    RecvWR,
    SendFlags,
    SendWR,
    StartupError,
    StartupTimeout,
    StreamClosed,
    WaitTimeout,
    WCOpcode,
    WCStatus,
    WROpcode,
    connect,
    listen,
)
from tests.integration.rig import READS, End
from tests.integration.verbs.pair import HOST, SECONDS, Pair, in_each, statuses, stopped, succeeded

FLUSHED = WCStatus.WR_FLUSH_ERR


@in_each([False, True])
def check_connect_and_accept(pair: Pair, peer_to_peer: bool) -> None:
    """Private data goes both ways; ORD and IRD come to what both ends have."""
    active, passive = End(pair.a), End(pair.b)
    active.qp.post_recv(RecvWR(5))
    with listen(pair.b, HOST, 0) as listener:

        def accept() -> bytes:
            request = listener.get_request(timeout=SECONDS)
            request.accept(passive.qp, private_data=b"reply", ord=1, ird=2)
            return request.private_data

        accepted = pair.begin(accept)
        options = {"ord": 3, "ird": 4, "peer_to_peer": peer_to_peer}
        reply = connect(active.qp, HOST, listener.port, private_data=b"request", **options)
        assert (accepted(), reply) == (b"request", b"reply")
    reads = [(end.qp.connection.ord, end.qp.connection.ird) for end in (active, passive)]
    assert reads == [(2, 4), (1, 2)]
    assert {end.qp.state for end in (active, passive)} == {QPState.RTS}
    if not peer_to_peer:
        active.qp.post_send(SendWR(1, WROpcode.RDMA_WRITE))
        succeeded(active, (1, WCOpcode.RDMA_WRITE, 0))
    passive.qp.post_send(SendWR(2))
    succeeded(passive, (2, WCOpcode.SEND, 0))
    succeeded(active, (5, WCOpcode.RECV, 0))
    with pytest.raises(QPStateError, match="in state RTS; allowed: INIT"):
        connect(active.qp, HOST, 1)
    active.close()
    passive.close()


def check_reject(pair: Pair) -> None:
    """The QP can be connected after it."""
    active, passive = End(pair.a), End(pair.b)
    with listen(pair.b, HOST, 0) as listener:

        def answer() -> None:
            listener.get_request(timeout=SECONDS).reject(b"no")
            listener.get_request(timeout=SECONDS).accept(passive.qp)

        answered = pair.begin(answer)
        with pytest.raises(ConnectionRejected) as caught:
            connect(active.qp, HOST, listener.port)
        assert caught.value.private_data == b"no"
        connect(active.qp, HOST, listener.port)
        answered()
    active.qp.post_send(SendWR(1, WROpcode.RDMA_WRITE))
    succeeded(active, (1, WCOpcode.RDMA_WRITE, 0))
    active.close()
    passive.close()


def check_nobody_is_there(pair: Pair) -> None:
    end = End(pair.a)
    with listen(pair.b, HOST, 0) as listener:
        with pytest.raises(StartupTimeout):
            listener.get_request(timeout=0.05)
    with pytest.raises(ListenerClosed):
        listener.get_request(timeout=0.05)
    with pytest.raises(StartupError, match="TCP connection: "):
        connect(end.qp, HOST, listener.port, timeout=0.05)
    for options, text in (
        ({"private_data": bytes(509)}, "private_data|private data"),
        ({"ord": READS + 1}, "ORD 9; allowed: 0 to 8"),
        ({"ird": -1}, "IRD -1; allowed: 0 to 8"),
    ):
        with pytest.raises(ValueError, match=text):
            connect(end.qp, HOST, listener.port, **options)
    assert end.qp.state == QPState.INIT
    end.close()


def check_a_stream_that_has_ended(pair: Pair) -> None:
    """A QP that takes it stops at once or soon, and nothing waits for ever."""
    end = End(pair.a)
    ours, theirs = pair.streams()
    theirs.close()
    try:
        end.qp.connect(ours, initiator=True, crc=True, ord=1, ird=1, emss=1460)
    except StreamClosed:
        pass
    else:
        assert stopped(end) == Cause.LLP_CLOSED
    assert end.qp.state == QPState.ERR
    end.close()


def check_disconnect(pair: Pair) -> None:
    """What was posted is flushed at both ends, and what is posted afterwards."""
    with pair.link() as link:
        one, other = link.active, link.passive
        other.qp.post_recv(RecvWR(5))
        one.qp.post_recv(RecvWR(1))
        one.qp.disconnect()
        assert statuses(one, 1) == {1: FLUSHED}
        assert one.qp.query_state() == (QPState.ERR, Cause.STOPPED_BY_DRIVER)
        assert stopped(other) == Cause.LLP_CLOSED
        assert statuses(other, 1) == {5: FLUSHED}
        for end in (one, other):
            end.qp.post_send(SendWR(6, sg=[end.element()]), SendWR(7, WROpcode.RDMA_READ))
            end.qp.post_recv(RecvWR(8))
            assert statuses(end, 3) == {6: FLUSHED, 7: FLUSHED, 8: FLUSHED}
        one.qp.disconnect()
        assert not pair.a.events


@in_each([SendFlags.SIGNALED, SendFlags(0)])
def check_a_graceful_end(pair: Pair, flags: SendFlags) -> None:
    """With `drain` the peer has all that was posted."""
    with pair.link() as link:
        one, other = link.active, link.passive
        one.qp.post_send(
            *(SendWR(n, WROpcode.RDMA_WRITE, [one.element()], flags, **link.remote) for n in (1, 2))
        )
        one.qp.disconnect(drain=SECONDS)
        assert [wc.status for wc in one.cq.poll()] == [WCStatus.SUCCESS] * (2 if flags else 0)
        assert stopped(other) == Cause.LLP_CLOSED
        assert other.buffer == one.buffer


def check_a_graceful_end_that_takes_too_long(pair: Pair) -> None:
    """A Responder may not send before the Initiator did: its Send cannot be done."""
    with pair.link() as link:
        link.passive.qp.post_send(SendWR(1))
        with pytest.raises(WaitTimeout, match="end of the send queue of QP"):
            link.passive.qp.disconnect(drain=0.05)
        assert statuses(link.passive, 1) == {1: FLUSHED}
        assert stopped(link.active) == Cause.LLP_CLOSED
