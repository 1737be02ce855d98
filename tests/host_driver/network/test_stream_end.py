"""A QP whose TCP connection ended says how, if its device has a network that knows."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from stagecoach.host_driver import (
    CQ,
    PD,
    QP,
    Cause,
    ConnectionReset,
    ConnectionTimedOut,
    Context,
    QPCap,
    QPError,
    QPInitAttr,
    RecvWR,
    StreamClosed,
    StreamEnd,
    TransportError,
)
from stagecoach.host_driver.network.address_claim import SHORT
from stagecoach.host_driver.network.network import Network
from stagecoach.host_driver.qp import raise_if_stopped
from stagecoach.host_driver.transport.base import ByteStream
from stagecoach.host_driver.transport.network import NetworkTransport
from tests.host_driver.fake_device import FakeDevice
from tests.host_driver.network.peer import Peer
from tests.host_driver.network.port import FakePort
from tests.host_driver.network.rig import SETTINGS


class FakeNic(FakeDevice):
    """A `NetworkTransport`: the fake device, whose streams are those of a network."""

    def __init__(self, make_port: Callable[..., FakePort]) -> None:
        super().__init__()
        self.network = make_port(maximum_connections=16)
        self.peer = Peer(self.network, 4420)
        self.stack = Network(self.network, SETTINGS, SHORT)

    def attach(self, connection: int, stream: ByteStream) -> None:
        self.stack.attach(connection, stream)

    def detach(self, connection: int, timeout: float = 2.0) -> None:
        self.stack.detach(connection, timeout)

    def stream_end(self, connection: int) -> StreamEnd | None:
        return self.stack.stream_end(connection)

    def close(self) -> None:
        super().close()
        self.stack.close()


@pytest.fixture
def nic(make_port) -> Iterator[SimpleNamespace]:
    """`transport`, and on it `context`, `cq` and `pd`."""
    transport = FakeNic(make_port)
    with Context(transport) as context:
        yield SimpleNamespace(
            transport=transport, context=context, cq=CQ(context, 16), pd=PD(context)
        )


def joined(nic: SimpleNamespace) -> tuple[QP, int]:
    """A QP that has a connection, and what it is for the engine."""
    stream = nic.transport.stack.connect("192.0.2.1", 4420, 5)
    qp = QP(nic.pd, QPInitAttr(nic.cq, nic.cq, QPCap(2, 2)))
    qp.connect(stream, initiator=True, crc=True, ord=1, ird=1, emss=1460)
    return qp, stream.handle


def stop(nic: SimpleNamespace, qp: QP, cause: Cause, *ends: tuple[int, StreamEnd, bool]) -> None:
    """The device says that a QP stopped, before the network's thread has seen anything."""
    with nic.transport.stack._turn.lock:
        for handle, how, peer_closed in ends:
            nic.transport.network.end(handle, how, peer_closed=peer_closed)
        nic.transport.event(qp.qp_num, cause)
        nic.context.process_events()


CAUSES = [
    (Cause.LLP_CLOSED, "connection closed or lost"),
    (Cause.LLP_CLOSED_INSIDE_FPDU, "connection closed or lost inside an FPDU"),
]
ENDS = [
    (StreamEnd.RESET, ConnectionReset, "the peer reset the connection"),
    (StreamEnd.TIMED_OUT, ConnectionTimedOut, "the connection timed out, the peer acknowledges no"),
    (StreamEnd.ABORTED, StreamClosed, "the connection was aborted here"),
]


def check(nic: SimpleNamespace, qp: QP, how: StreamEnd, error: type, text: str) -> None:
    """Event, QP, completions and exception all say how it ended."""
    event = nic.context.events[-1]
    assert (event.stream_end, qp.stream_end) == (how, how)
    assert text in event.describe() and text in event.reason
    (flushed,) = nic.cq.poll()
    assert flushed.stream_end is how
    assert text in flushed.describe()
    with pytest.raises(QPError) as raised:
        raise_if_stopped(qp)
    assert raised.value.stream_end is how
    assert text in str(raised.value)
    assert type(raised.value.__cause__) is error


@pytest.mark.parametrize(("cause", "words"), CAUSES)
@pytest.mark.parametrize(("how", "error", "why"), ENDS)
def test_a_connection_that_is_lost_says_how(nic, cause, words, how, error, why):
    assert isinstance(nic.transport, NetworkTransport)
    qp, handle = joined(nic)
    qp.post_recv(RecvWR(1))
    stop(nic, qp, cause, (handle, how, False))
    check(nic, qp, how, error, f"{words}: {why}")
    # What is posted afterwards says so, too.
    qp.post_recv(RecvWR(2))
    (flushed,) = nic.cq.poll()
    assert flushed.stream_end is how


@pytest.mark.parametrize(("cause", "words"), CAUSES)
@pytest.mark.parametrize("then", [None, StreamEnd.CLOSED, StreamEnd.RESET, StreamEnd.TIMED_OUT])
def test_a_fin_is_the_end_whatever_comes_after_it(nic, cause, words, then):
    qp, handle = joined(nic)
    qp.post_recv(RecvWR(1))
    stop(nic, qp, cause, *([] if then is None else [(handle, then, True)]))
    check(nic, qp, StreamEnd.CLOSED, StreamClosed, f"{words}: the peer closed the connection")


def test_an_end_that_the_network_has_seen_before_is_remembered(nic):
    qp, handle = joined(nic)
    other, _ = joined(nic)
    with nic.transport.stack._turn.lock:
        nic.transport.network.end(handle, StreamEnd.RESET)
        nic.transport.stack._service.serve()
    stop(nic, qp, Cause.LLP_CLOSED)
    stop(nic, other, Cause.LLP_CLOSED)
    assert [each.stream_end for each in nic.context.events] == [StreamEnd.RESET, StreamEnd.CLOSED]


@pytest.mark.parametrize("carrier", ["up", "lost: unix:/w: it went"])
def test_an_error_that_leaves_a_context_has_a_note_of_the_carrier(nic, carrier):
    qp, handle = joined(nic)
    with pytest.raises(QPError) as raised, nic.context:
        stop(nic, qp, Cause.LLP_CLOSED, (handle, StreamEnd.TIMED_OUT, False))
        nic.transport.network.carrier = carrier
        raise_if_stopped(qp)
    notes = [] if carrier == "up" else [f"carrier {carrier}"]
    assert getattr(raised.value, "__notes__", []) == notes


def test_an_event_that_is_lost_takes_nothing_away(nic):
    qp, handle = joined(nic)
    with nic.transport.stack._turn.lock:
        nic.transport.network.end(handle, StreamEnd.TIMED_OUT)
        nic.transport.event(qp.qp_num, Cause.LLP_CLOSED)
        ring = nic.context._event_queue._ring
        ring.memory[:] = bytes(len(ring.memory))
        nic.context.process_events(ask=True)
    assert [each.stream_end for each in nic.context.events] == [StreamEnd.TIMED_OUT]


def test_the_next_connection_of_a_qp_number_begins_anew(nic):
    qp, handle = joined(nic)
    stop(nic, qp, Cause.LLP_CLOSED, (handle, StreamEnd.RESET, False))
    number = qp.qp_num
    qp.close()
    assert nic.transport.stream_end(number) is None
    nic.context.resources._next_numbers.clear()
    qp, _ = joined(nic)
    assert qp.qp_num == number
    stop(nic, qp, Cause.LLP_CLOSED)
    assert qp.stream_end is StreamEnd.CLOSED


def test_a_stream_that_no_qp_got_is_none_of_a_qp(nic, monkeypatch):
    def refuse(handle, connection):
        nic.transport.network.end(handle, StreamEnd.RESET)
        nic.transport.stack._service.serve()
        raise TransportError("no room")

    monkeypatch.setattr(nic.transport.network, "attach", refuse)
    with pytest.raises(TransportError, match="no room"):
        joined(nic)
    monkeypatch.undo()
    assert not nic.context.qps
    nic.context.resources._next_numbers.clear()
    qp, _ = joined(nic)
    stop(nic, qp, Cause.LLP_CLOSED)
    assert qp.stream_end is StreamEnd.CLOSED


def test_a_stream_that_ends_before_its_qp_gets_it_says_how(nic, monkeypatch):
    def lose(handle, connection):
        nic.transport.network.end(handle, StreamEnd.RESET)
        raise KeyError(handle)

    monkeypatch.setattr(nic.transport.network, "attach", lose)
    with pytest.raises(ConnectionReset, match=r"192\.0\.2\.1:4420 ended: the peer reset the conn"):
        joined(nic)


def test_a_stream_that_the_network_saw_end_says_how_when_it_is_given_to_a_qp(nic):
    stream = nic.transport.stack.connect("192.0.2.1", 4420, 5)
    with nic.transport.stack._turn.lock:
        nic.transport.network.end(stream.handle, StreamEnd.TIMED_OUT)
        nic.transport.stack._service.serve()
    with pytest.raises(ConnectionTimedOut, match=r"192\.0\.2\.1:4420 ended: the connection timed"):
        nic.transport.attach(0, stream)


def test_other_causes_have_no_end_of_the_stream(nic):
    qp, _ = joined(nic)
    stop(nic, qp, Cause.CRC_ERROR)
    assert (nic.context.events[-1].stream_end, qp.stream_end) == (None, None)
    with pytest.raises(QPError, match="MPA CRC error") as raised:
        raise_if_stopped(qp)
    assert raised.value.__cause__ is None


def test_the_network_looks_again_when_an_end_was_taken(nic, monkeypatch):
    """Its thread tells those that wait for a stream; it does not find the end any more."""
    wakes = []
    monkeypatch.setattr(nic.transport.network, "wake", lambda: wakes.append("wake"))
    qp, _ = joined(nic)
    stream = nic.transport.stack.connect("192.0.2.1", 4420, 5)
    with nic.transport.stack._turn.lock:
        wakes.clear()
        nic.transport.network.end(stream.handle, StreamEnd.RESET)
        nic.transport.stream_end(qp.qp_num)
        nic.transport.stream_end(qp.qp_num)
        assert wakes == ["wake"]
    with pytest.raises(ConnectionReset):
        stream.receive_exactly(1, 5)


@pytest.mark.parametrize(("cause", "words"), CAUSES)
def test_a_device_without_a_network_says_what_it_always_said(cause, words):
    transport = FakeDevice()
    assert not isinstance(transport, NetworkTransport)
    with Context(transport) as context:
        cq = CQ(context, 16)
        qp = QP(PD(context), QPInitAttr(cq, cq, QPCap(2, 2)))
        transport.event(qp.qp_num, cause)
        context.process_events()
        (event,) = context.events
        assert (event.stream_end, qp.stream_end) == (None, None)
        assert event.describe() == f"QP 0 stopped: {words} (layer 2, type 0, code 0x01)"
