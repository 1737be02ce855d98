"""Ids of the connection manager on fake devices: for calls that wait, and for events."""

import errno
import socket
import threading
from collections.abc import Iterator

import pytest

from stagecoach import host_driver as driver
from stagecoach.host_driver import locate
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import CompletionOpcode
from stagecoach.pyverbs import cm_enums as ce
from stagecoach.pyverbs import enums as e
from stagecoach.pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from stagecoach.pyverbs.cq import CQ
from stagecoach.pyverbs.device import Context
from stagecoach.pyverbs.pd import PD
from stagecoach.pyverbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from stagecoach.pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from tests.host_driver.startup_rig import PATIENCE, Background, RtrDevice, receive_all

HOST = "127.0.0.1"
INIT = QPInitAttr(qp_type=e.IBV_QPT_RC, cap=QPCap(max_send_wr=4))


@pytest.fixture
def opened(monkeypatch) -> Iterator[list[RtrDevice]]:
    """The default devices that ids open: fake ones. At the end none is open."""
    devices: list[RtrDevice] = []

    def open_one(_: locate.Locator) -> RtrDevice:
        devices.append(RtrDevice())
        return devices[-1]

    monkeypatch.setattr(locate.Locator, "open", open_one)
    yield devices
    assert all(device.closed for device in devices)


@pytest.fixture
def port() -> str:
    """A port that is free, as a service."""
    with socket.create_server((HOST, 0)) as server:
        return str(server.getsockname()[1])


def passive_address(port: str) -> AddrInfo:
    return AddrInfo(src=HOST, src_service=port, port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE)


def active_address(port: str) -> AddrInfo:
    return AddrInfo(dst=HOST, dst_service=port, port_space=ce.RDMA_PS_TCP)


def own_device() -> Context:
    return Context(verbs=driver.Context(RtrDevice()))


# Calls that wait


@pytest.fixture
def pair(opened: list[RtrDevice], port: str) -> Iterator[tuple[CMID, CMID]]:
    """Two connected ids: the passive one on the default device, the other on its own."""
    context = own_device()
    with CMID(creator=passive_address(port), qp_init_attr=INIT) as listener:
        listener.listen()
        with CMID(active_address(port), INIT, PD(context)) as active:
            with Background(lambda: active.connect(ConnParam(resources=2, depth=3))):
                with listener.get_request() as passive:
                    passive.accept(ConnParam(resources=5, depth=1))
                    yield passive, active
    context.verbs.close()


def test_two_ids_are_connected_with_what_they_brought(pair, opened):
    passive, active = pair
    assert (passive.context.verbs.transport, passive.dev_name) == (opened[0], "simulation")
    assert (active.dev_name, active.port_num) == ("RtrDevice", 1)
    wait_for(active, e.IBV_QPS_RTS)
    attr, init = active.query_qp(e.IBV_QP_CAP)
    assert (attr.max_rd_atomic, attr.max_dest_rd_atomic) == (3, 2)
    assert init.max_send_wr == 4
    assert passive.query_qp(0)[0].max_dest_rd_atomic == 5
    assert passive.qpn == 0
    assert passive._require_qp().verbs.connection.peer_to_peer, "the passive end may send first"
    passive.disconnect()
    assert passive.query_qp(0)[0].qp_state == e.IBV_QPS_ERR


def wait_for(cmid: CMID, state: int) -> None:
    done = threading.Event()
    while cmid.query_qp(0)[0].qp_state != state:
        done.wait(0.01)


def test_an_id_registers_posts_and_completes(pair):
    passive, _ = pair
    device = passive.context.verbs.transport
    qp = passive._require_qp().verbs
    messages, readable, writable = (
        passive.reg_msgs(64),
        passive.reg_read(64),
        passive.reg_write(64),
    )
    flags = driver.AccessFlags
    assert messages.verbs.access == flags.LOCAL_WRITE
    assert readable.verbs.access == flags.LOCAL_WRITE | flags.REMOTE_READ
    assert writable.verbs.access == flags.LOCAL_WRITE | flags.REMOTE_WRITE
    passive.post_recv(messages, 10)
    device.complete(qp.rcq.number, qp.qp_num, 0, CompletionOpcode.RECEIVE, 9)
    assert passive.get_recv_comp().byte_len == 9
    posted = []
    qp.post_send = lambda *requests: posted.extend(requests)
    passive.post_send(messages, length=7)
    passive.post_write(writable, 8, 0x100, 0x55)
    passive.post_read(readable, 9, 0x200, 0x66, flags=e.IBV_SEND_SIGNALED)
    names = [request.opcode.name for request in posted]
    assert names == ["SEND", "RDMA_WRITE", "RDMA_READ"]
    assert [request.sg[0].length for request in posted] == [7, 8, 9]
    assert [(each.remote_addr, each.rkey) for each in posted[1:]] == [(0x100, 0x55), (0x200, 0x66)]
    assert [int(each.send_flags) for each in posted] == [1, 0, 1]
    device.event(qp.qp_num, Cause.CRC_ERROR)
    passive.post_recv(messages)
    assert passive.get_recv_comp().status == e.IBV_WC_WR_FLUSH_ERR


def test_a_refusal_is_an_error_with_its_number(opened, port):
    with CMID(passive_address(port)) as listener, CMID(active_address(port), INIT) as active:
        listener.listen()
        with Background(lambda: refuse(listener)):
            with pytest.raises(PyverbsRDMAError, match=r"connect: .*no room") as caught:
                active.connect()
    assert caught.value.error_code == errno.ECONNREFUSED


def refuse(listener: CMID) -> None:
    with listener.get_request() as passive:
        passive.reject("no room")


def test_ids_share_their_device_and_the_last_one_closes_it(opened, port):
    first = CMID(active_address(port), INIT)
    second = CMID(passive_address(port))
    assert first.context is second.context and first.pd is second.pd
    assert Context(cmid=first).verbs is first.context.verbs
    assert PD(first).verbs.context is first.context.verbs
    first.close()
    first.close()
    assert [device.closed for device in opened] == [False]
    second.close()


def test_an_id_without_what_it_needs_says_so(opened, port):
    bare = CMID()
    assert (bare.dev_name, bare.qpn) == (None, None)
    for call, match in (
        (bare.listen, "no address"),
        (bare.connect, "no address"),
        (bare.get_request, "does not listen"),
        (bare.reject, "no request"),
        (bare.get_send_comp, "no QP"),
        (bare.disconnect, "no QP"),
    ):
        with pytest.raises(PyverbsRDMAError, match=match) as caught:
            call()
        assert caught.value.error_code == errno.EINVAL
    with pytest.raises(PyverbsUserError, match="CMID of a str"):
        CMID("127.0.0.1")  # type: ignore[arg-type]
    with CMID(active_address(port)) as cmid:
        with pytest.raises(PyverbsRDMAError, match="no QP, and there is no QP 3"):
            cmid.connect(ConnParam(qp_num=3))


# Addresses and parameters


def test_addresses_are_looked_up():
    assert AddrInfo(src=b"127.0.0.1", src_service="80").source == (HOST, 80)
    found = AddrInfo(dst="localhost", dst_service="http", flags=ce.RAI_PASSIVE)
    assert found.destination[1] == 80
    assert AddrInfo(src_service="7471").source == ("", 7471)
    for name in ({"src": "no.such.host.invalid"}, {"dst_service": "no-such-service"}):
        with pytest.raises(PyverbsRDMAError, match=r"AddrInfo: .*no") as caught:
            AddrInfo(**name)
        assert caught.value.error_code == errno.EADDRNOTAVAIL
    with pytest.raises(PyverbsRDMAError, match="'localhost'"):
        AddrInfo(dst="localhost", flags=ce.RAI_NUMERICHOST)


def test_port_spaces_of_datagrams_are_refused():
    for make in (lambda: AddrInfo(port_space=ce.RDMA_PS_UDP), lambda: CMID(None, None, None, 2)):
        with pytest.raises(PyverbsRDMAError, match="port space") as caught:
            make()
        assert caught.value.error_code == errno.EOPNOTSUPP


def test_private_data_is_cut_to_its_length():
    param = ConnParam(data_len=3)
    param.set_private_data("longer")
    assert param.private_data == b"lon"
    param = ConnParam(qp_num=4)
    param.set_private_data(b"longer")
    assert (param.private_data, param.qpn) == (b"longer", 4)


# Events


class Ends:
    """A listening and a connecting id, each with its channel."""

    def __init__(self, port: str):
        self.channels = CMEventChannel(), CMEventChannel()
        self.listener, self.active = (CMID(creator=each) for each in self.channels)
        self.listener.bind_addr(passive_address(port))
        self.listener.listen(backlog=3)
        self.active.resolve_addr(active_address(port))
        self.expect(1, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        self.active.resolve_route()
        self.expect(1, ce.RDMA_CM_EVENT_ROUTE_RESOLVED)
        self.passive = CMID()

    def expect(self, end: int, kind: int) -> CMEvent:
        """The next event of an end, which has to be of that type."""
        event = CMEvent(self.channels[end])
        assert event.event_type == kind, event.event_str()
        event.ack_cm_event()
        event.close()
        return event

    def take_request(self) -> CMEvent:
        event = self.expect(0, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
        self.passive = CMID(creator=event, listen_id=self.listener)
        return event

    def close(self) -> None:
        for cmid in (self.active, self.passive, self.listener):
            cmid.close()


@pytest.fixture
def ends(opened: list[RtrDevice], port: str) -> Iterator[Ends]:
    found = Ends(port)
    yield found
    found.close()


def test_both_ends_are_told_of_the_connection_and_of_its_end(ends):
    ends.active.create_qp(INIT)
    question, answer = ConnParam(), ConnParam()
    question.set_private_data("question")
    answer.set_private_data("answer")
    ends.active.connect(question)
    assert ends.take_request().private_data == b"question"
    ends.passive.create_qp(INIT)
    ends.passive.accept(answer)
    ends.expect(0, ce.RDMA_CM_EVENT_ESTABLISHED)
    assert ends.expect(1, ce.RDMA_CM_EVENT_ESTABLISHED).private_data == b"answer"
    ends.passive.disconnect()
    ends.expect(0, ce.RDMA_CM_EVENT_DISCONNECTED)
    ends.active.context.verbs.transport.event(ends.active.qpn, Cause.LLP_CLOSED)
    ends.expect(1, ce.RDMA_CM_EVENT_DISCONNECTED)
    for channel in ends.channels:
        expect_nothing_more(channel)


def expect_nothing_more(channel: CMEventChannel) -> None:
    """The channel has no event, and closing it ends the wait for one."""
    closing = threading.Timer(0.05, channel.close)
    closing.start()
    with pytest.raises(PyverbsRDMAError, match="the channel is closed"):
        CMEvent(channel)
    closing.join(PATIENCE)


def test_a_qp_of_the_program_is_connected_by_its_number(ends):
    cq = CQ(ends.active.context, 64)
    init = QPInitAttr(e.IBV_QPT_RC, None, cq, cq)
    mine, its = (QP(end.pd, init, QPAttr()) for end in (ends.active, ends.listener))
    for state in (e.IBV_QPS_INIT, e.IBV_QPS_RTR, e.IBV_QPS_RTS):
        mine.modify(*ends.active.init_qp_attr(state))
    ends.active.connect(ConnParam(qp_num=mine.qp_num))
    ends.take_request()
    ends.passive.accept(ConnParam(qp_num=its.qp_num))
    ends.expect(1, ce.RDMA_CM_EVENT_CONNECT_RESPONSE)
    ends.active.establish()
    ends.expect(0, ce.RDMA_CM_EVENT_ESTABLISHED)
    assert mine.qp_state == its.qp_state == e.IBV_QPS_RTS
    ends.active.disconnect()
    assert mine.qp_state == e.IBV_QPS_ERR
    mine.close()
    its.close()


def test_a_refusal_is_an_event_with_its_private_data(ends):
    ends.active.create_qp(INIT)
    ends.active.connect(ConnParam())
    ends.take_request()
    ends.passive.reject(b"full")
    assert ends.expect(1, ce.RDMA_CM_EVENT_REJECTED).private_data == b"full"


def test_a_peer_that_is_not_there_is_an_event(ends):
    ends.listener.close()
    ends.active.create_qp(INIT)
    ends.active.connect()
    ends.expect(1, ce.RDMA_CM_EVENT_CONNECT_ERROR)


def test_a_peer_that_does_not_answer_is_an_event(ends, monkeypatch):
    monkeypatch.setattr(driver, "connect", _too_late)
    ends.active.create_qp(INIT)
    ends.active.connect()
    ends.expect(1, ce.RDMA_CM_EVENT_UNREACHABLE)


def _too_late(*_: object, **__: object) -> bytes:
    raise driver.StartupTimeout(driver.StartupStep.REPLY, 10.0, "nothing came")


def test_a_peer_that_speaks_another_protocol_is_no_event(ends, port):
    with socket.create_connection((HOST, int(port))) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        ends.active.create_qp(INIT)
        ends.active.connect()
        assert ends.take_request().event_str() == "RDMA_CM_EVENT_CONNECT_REQUEST"
        assert receive_all(stranger) == b""


def test_an_event_has_to_be_a_request(ends):
    ends.active.resolve_route()
    event = ends.expect(1, ce.RDMA_CM_EVENT_ROUTE_RESOLVED)
    for listener in (None, ends.listener):
        with pytest.raises(PyverbsUserError, match="a request, and its listen_id"):
            CMID(event, listen_id=listener)


# What they say of themselves


def test_ids_tell_what_they_have(pair, port):
    passive, active = pair
    assert repr(passive) == (f"<CMID of simulation: QP {passive.qpn}>")
    assert repr(active) == f"<CMID of RtrDevice: QP {active.qpn}>"
    active.close()
    assert repr(active) == f"<CMID of RtrDevice: QP {active._qp.qp_num}, closed>"
    assert repr(CMID()) == "<CMID of no device: no QP>"


def test_an_id_tells_where_it_listens(opened, port):
    with CMID(creator=passive_address(port)) as listener:
        listener.listen()
        assert repr(listener) == f"<CMID of simulation: <ConnectionListener at port {port}>>"
    assert repr(listener).endswith(f"at port {port}, closed>, closed>")


def test_addresses_parameters_and_events_show_their_numbers(port):
    address = f"AddrInfo(source=('{HOST}', {port}), destination=('', 0), flags=1)"
    assert repr(passive_address(port)) == address
    assert repr(ConnParam(2, 3)) == "ConnParam(resources=2, depth=3, qpn=0, private_data=b'')"
    channel = CMEventChannel()
    channel.put(ce.RDMA_CM_EVENT_REJECTED, b"why")
    assert repr(channel) == "<CMEventChannel: 1 events, 0 sources>"
    event = CMEvent(channel)
    assert repr(event) == "<CMEvent RDMA_CM_EVENT_REJECTED: 3 bytes of private data>"
    channel.close()
    assert repr(channel) == "<CMEventChannel: 0 events, 0 sources, closed>"
