"""The connection manager of RDMA: ids, their events, and addresses."""

import errno
import sys
import threading
import warnings
from collections.abc import Callable
from math import inf
from typing import Any, NoReturn

from stagecoach import host_driver as driver
from stagecoach.pyverbs import cm_enums as ce
from stagecoach.pyverbs import enums as e
from stagecoach.pyverbs._default_devices import DEFAULT_DEVICES
from stagecoach.pyverbs._events import CMEvent, CMEventChannel, Event
from stagecoach.pyverbs._parameters import AddrInfo, ConnParam, require_connected
from stagecoach.pyverbs.base import PyverbsCM, absent, translated, unsupported
from stagecoach.pyverbs.cq import CQ, WC, completion_of
from stagecoach.pyverbs.device import default_name
from stagecoach.pyverbs.mr import MR
from stagecoach.pyverbs.pd import PD
from stagecoach.pyverbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from stagecoach.pyverbs.qp import NO_ECE, QP, QPAttr, QPInitAttr
from stagecoach.pyverbs.wr import CONNECTED_ONLY, SGE, RecvWR, SendWR

__all__ = [
    "CMID",
    "AddrInfo",
    "CMEvent",
    "CMEventChannel",
    "ConnParam",
    "JoinMCAttrEx",
    "UDParam",
]

JoinMCAttrEx = absent("JoinMCAttrEx", CONNECTED_ONLY)
UDParam = absent("UDParam", CONNECTED_ONLY)

_BACKLOG = 64
"""Connections without a whole Request that a listener holds if the program does not say."""

_LONGEST_WAIT = 86400.0
"""Seconds of one wait for a peer; then it begins again."""


class CMID(PyverbsCM):
    """An id of the connection manager: it listens, or it is one end of a connection.

    Parameters
    ----------
    creator: an `AddrInfo` for calls that wait, a `CMEventChannel` for events, the `CMEvent` of a
        request with `listen_id`, the id that listens.
    qp_init_attr: of the QP that is made with it, or of those of the peers of a listener.
    pd: names the device; else it is the default one, as of the option `--device` of the commands.
    """

    _shares = False  # a default device

    def __init__(
        self,
        creator: AddrInfo | CMEventChannel | CMEvent | None = None,
        qp_init_attr: QPInitAttr | None = None,
        pd: PD | None = None,
        port_space: int = ce.RDMA_PS_TCP,
        listen_id: "CMID | None" = None,
    ):
        require_connected(port_space)
        self.pd: Any = pd
        self.context: Any = None if pd is None else pd.context
        self.event_channel: CMEventChannel | None = None
        self._init_attr = qp_init_attr
        self._addresses: AddrInfo | None = None
        self._listener: driver.ConnectionListener | None = None
        self._request: driver.ConnectionRequest | None = None
        self._qp: QP | None = None
        self._external: driver.QP | None = None
        self._cqs: list[CQ] = []
        self._regions: list[MR] = []
        self._closed = False
        if isinstance(creator, AddrInfo):
            self._addresses = creator
            self._bind()
            if qp_init_attr is not None and not creator.flags & ce.RAI_PASSIVE:
                self.create_qp(qp_init_attr)
        elif isinstance(creator, CMEventChannel):
            self.event_channel = creator
        elif isinstance(creator, CMEvent):
            if listen_id is None or creator.request is None:
                raise PyverbsUserError("CMID of an event; allowed: a request, and its listen_id")
            self._adopt(creator.request, listen_id)
        elif creator is not None:
            raise PyverbsUserError(
                f"CMID of a {type(creator).__name__}; allowed: AddrInfo, CMEventChannel, CMEvent"
            )

    def __repr__(self) -> str:
        has = [] if self._qp is None else [f"QP {self._qp.qp_num}"]
        has += [repr(each) for each in (self._listener, self._request) if each is not None]
        if self._closed:
            has.append("closed")
        return f"<CMID of {self.dev_name or 'no device'}: {', '.join(has) or 'no QP'}>"

    def _bind(self, name: str | None = None) -> None:
        """Gives the id its device: the default one, if it has none and `name` does not say."""
        if self.context is None:
            self.context, self.pd = DEFAULT_DEVICES.take(name or default_name())
            self._shares = True

    def _adopt(self, request: driver.ConnectionRequest, listener: "CMID") -> None:
        """Becomes the id of a peer that wants to connect."""
        self._request = request
        self.event_channel = listener.event_channel
        if listener._shares:
            self._bind(listener.dev_name)
        else:
            self.context, self.pd = listener.context, listener.pd

    @property
    def dev_name(self) -> str | None:
        """The name of its device, once it has one."""
        return None if self.context is None else self.context.name

    @property
    def port_num(self) -> int:
        """1: a device has one port."""
        return 1

    @property
    def qpn(self) -> int | None:
        """The number of its QP, if it has one."""
        return None if self._qp is None else self._qp.qp_num

    # Addresses and events

    def _tell(self, kind: int, private_data: bytes = b"") -> None:
        if self.event_channel is not None:
            self.event_channel.put(kind, private_data)

    def bind_addr(self, lai: AddrInfo) -> None:
        """Takes the address to listen at, and opens the device."""
        self._addresses = lai
        self._bind()

    def resolve_addr(self, rai: AddrInfo, timeout_ms: int = 2000) -> None:
        """Takes the address to connect to, and opens the device; the event comes at once."""
        self._addresses = rai
        self._bind()
        self._tell(ce.RDMA_CM_EVENT_ADDR_RESOLVED)

    def resolve_route(self, timeout_ms: int = 2000) -> None:
        """Nothing: TCP finds its way when it connects. The event comes at once."""
        self._tell(ce.RDMA_CM_EVENT_ROUTE_RESOLVED)

    def _require_addresses(self) -> AddrInfo:
        if self._addresses is None:
            raise PyverbsRDMAError("the id has no address", errno.EINVAL)
        return self._addresses

    # The passive side

    def listen(self, backlog: int = 0) -> None:
        """Listens at the source address."""
        host, port = self._require_addresses().source
        with translated("listen"):
            self._listener = driver.listen(
                self.context.verbs, host, port, backlog=backlog or _BACKLOG
            )
        if self.event_channel is not None:
            self.event_channel.watch(self._next_request)

    def _require_listener(self) -> driver.ConnectionListener:
        if self._listener is None:
            raise PyverbsRDMAError("the id does not listen", errno.EINVAL)
        return self._listener

    def _next_request(self) -> Event | None:
        """For the channel: a peer that wants to connect, if there is one."""
        request = self._wait_for_request(0.0)
        if request is None:
            return None
        return Event(ce.RDMA_CM_EVENT_CONNECT_REQUEST, request.private_data, request)

    def _wait_for_request(self, seconds: float) -> driver.ConnectionRequest | None:
        """A peer. Those that are not as they should be are no business of the program."""
        with translated("get_request"):
            try:
                return self._require_listener().get_request(seconds)
            except driver.ListenerClosed:
                raise
            except driver.StartupError as error:
                self.logger.debug("listener: %s", error)
                return None

    def get_request(self) -> "CMID":
        """Waits for a peer; an id for its connection, with a QP if this one has attributes."""
        while (request := self._wait_for_request(_LONGEST_WAIT)) is None:
            pass
        child = CMID()
        child._adopt(request, self)
        if self._init_attr is not None:
            child.create_qp(self._init_attr)
        return child

    def _take_request(self) -> driver.ConnectionRequest:
        if self._request is None:
            raise PyverbsRDMAError("the id has no request to answer", errno.EINVAL)
        request, self._request = self._request, None
        return request

    def accept(self, param: ConnParam | None = None) -> None:
        """Accepts the peer, and waits for it; with an event channel a thread does that."""
        qp = self._connectable(param)
        request = self._take_request()
        options = self._options(param)
        self._run("accept", lambda: self._accept(request, qp, options))

    @staticmethod
    def _accept(request: driver.ConnectionRequest, qp: driver.QP, options: dict[str, Any]) -> bytes:
        with request:  # which closes it if it cannot be accepted
            request.accept(qp, **options)
        return b""

    def reject(self, private_data: bytes | str | None = None) -> None:
        """Refuses the peer."""
        octets = private_data.encode() if isinstance(private_data, str) else private_data
        with translated("reject"):
            self._take_request().reject(octets or b"")

    # Connecting

    def connect(self, param: ConnParam | None = None) -> None:
        """Connects to the destination, and waits; with an event channel a thread does that.

        Its event is ESTABLISHED, or CONNECT_RESPONSE for a QP that is not that of the id, as
        librdmacm has it. The peer may send first: the driver begins with an RTR frame (RFC 6581,
        9.2).
        """
        host, port = self._require_addresses().destination
        qp = self._connectable(param)
        options = {**self._options(param), "peer_to_peer": True}
        own = self._qp is not None
        done = ce.RDMA_CM_EVENT_ESTABLISHED if own else ce.RDMA_CM_EVENT_CONNECT_RESPONSE
        self._run("connect", lambda: driver.connect(qp, host, port, **options), done)

    def _connectable(self, param: ConnParam | None) -> driver.QP:
        """The QP to connect: that of the id, or the one of which `param` has the number."""
        if self._qp is not None:
            return self._qp.verbs
        number = 0 if param is None else param.qpn
        found = self.context.verbs.qps.get(number)
        if not isinstance(found, driver.QP):
            raise PyverbsRDMAError(f"the id has no QP, and there is no QP {number}", errno.EINVAL)
        self._external = found
        return found

    def _options(self, param: ConnParam | None) -> dict[str, Any]:
        """ORD, IRD and private data; what the device can have if there is no `param`."""
        if param is None:
            return {}
        most = self.context.verbs.attr.max_qp_rd_atom
        return {
            "ird": min(param.resources, most),
            "ord": min(param.depth, most),
            "private_data": param.private_data,
        }

    def _run(
        self, what: str, step: Callable[[], bytes], done: int = ce.RDMA_CM_EVENT_ESTABLISHED
    ) -> None:
        """Does a step that waits for the peer, here or, for events, in a thread.

        Its event when all went well is `done`.
        """
        if self.event_channel is None:
            with translated(what):
                step()
            return
        threading.Thread(
            target=self._run_for_events,
            args=(self.event_channel, step, done),
            name=what,
            daemon=True,
        ).start()

    def _run_for_events(
        self, channel: CMEventChannel, step: Callable[[], bytes], done: int
    ) -> None:
        try:
            private_data = step()
        except driver.ConnectionRejected as rejection:
            channel.put(ce.RDMA_CM_EVENT_REJECTED, rejection.private_data)
        except TimeoutError as error:
            self.logger.debug("no connection: %s", error)
            channel.put(ce.RDMA_CM_EVENT_UNREACHABLE)
        except (driver.StagecoachError, ValueError) as error:
            self.logger.debug("no connection: %s", error)
            channel.put(ce.RDMA_CM_EVENT_CONNECT_ERROR)
        else:
            channel.put(done, private_data)
            channel.watch(self._end)

    def _end(self) -> Event | None:
        """For the channel: the connection ended, once."""
        with translated("CMEvent"):
            connected = self._connected().state == driver.QPState.RTS
        if self.event_channel is None or connected:
            return None
        self.event_channel.forget(self._end)
        return Event(ce.RDMA_CM_EVENT_DISCONNECTED)

    def _connected(self) -> driver.QP:
        qp = self._external if self._qp is None else self._qp.verbs
        if qp is None:
            raise PyverbsRDMAError("the id has no QP", errno.EINVAL)
        return qp

    def establish(self) -> None:
        """Nothing: after CONNECT_RESPONSE the QP is connected, and the peer knows."""
        self._connected()

    def disconnect(self) -> None:
        """Ends the stream; what was not completed is flushed."""
        with translated("disconnect"):
            self._connected().disconnect()

    # The QP and its memory

    def create_qp(self, qp_init: QPInitAttr) -> None:
        """Makes a QP, and the CQs that `qp_init` does not name."""
        with translated("create_qp"):
            attr = QPInitAttr(
                qp_init.qp_type,
                scq=qp_init.send_cq or self._own_cq(qp_init.max_send_wr),
                rcq=qp_init.recv_cq or self._own_cq(qp_init.max_recv_wr),
                srq=qp_init.srq,
                cap=qp_init.cap,
                sq_sig_all=qp_init.sq_sig_all,
            )
            self._qp = QP(self.pd, attr)

    def _own_cq(self, requests: int) -> CQ:
        cq = CQ(self.context, max(1, requests))
        self._cqs.append(cq)
        return cq

    def _require_qp(self) -> QP:
        if self._qp is None:
            raise PyverbsRDMAError("the id has no QP; allowed: after create_qp", errno.EINVAL)
        return self._qp

    def query_qp(self, attr_mask: int) -> tuple[QPAttr, QPInitAttr]:
        """As `QP.query`."""
        return self._require_qp().query(attr_mask)

    def init_qp_attr(self, qp_state: int) -> tuple[QPAttr, int]:
        """What `QP.modify` needs for a state: nothing but that, which changes nothing."""
        if qp_state == e.IBV_QPS_RTS:
            return QPAttr(qp_state), 0
        return QPAttr(qp_state), e.IBV_QP_STATE | e.IBV_QP_ACCESS_FLAGS

    def _register(self, size: int, access: int) -> MR:
        region = MR(self, size, access)
        self._regions.append(region)
        return region

    def reg_msgs(self, size: int) -> MR:
        """A region for messages."""
        return self._register(size, e.IBV_ACCESS_LOCAL_WRITE)

    def reg_read(self, size: int = 0) -> MR:
        """A region that the peer may read."""
        return self._register(size, e.IBV_ACCESS_REMOTE_READ)

    def reg_write(self, size: int = 0) -> MR:
        """A region that the peer may write."""
        return self._register(size, e.IBV_ACCESS_REMOTE_WRITE)

    # Posting and completing

    def post_recv(self, mr: MR, length: int | None = None) -> None:
        """Posts a receive into the first `length` bytes of a region, all if not given."""
        element = SGE(mr.buf, length or mr.length, mr.lkey)
        self._require_qp().post_recv(RecvWR(num_sge=1, sg=[element]))

    def post_send(
        self, mr: MR, flags: int = e.IBV_SEND_SIGNALED, length: int | None = None
    ) -> None:
        """Sends the first `length` bytes of a region, all if not given."""
        self._post(e.IBV_WR_SEND, mr, length or mr.length, flags)

    def post_read(self, mr: MR, length: int, remote_addr: int, rkey: int, flags: int = 0) -> None:
        """Reads from the peer's memory into a region."""
        self._post(e.IBV_WR_RDMA_READ, mr, length, flags, rkey, remote_addr)

    def post_write(self, mr: MR, length: int, remote_addr: int, rkey: int, flags: int = 0) -> None:
        """Writes from a region to the peer's memory."""
        self._post(e.IBV_WR_RDMA_WRITE, mr, length, flags, rkey, remote_addr)

    def _post(
        self, opcode: int, mr: MR, length: int, flags: int, rkey: int = 0, remote_addr: int = 0
    ) -> None:
        element = SGE(mr.buf, length, mr.lkey)
        request = SendWR(opcode=opcode, num_sge=1, sg=[element], send_flags=flags)
        request.set_wr_rdma(rkey, remote_addr)
        self._require_qp().post_send(request)

    def get_send_comp(self) -> WC:
        """Waits for a completion of the send queue."""
        return self._completion(self._require_qp().verbs.scq)

    def get_recv_comp(self) -> WC:
        """Waits for a completion of the receive queue."""
        return self._completion(self._require_qp().verbs.rcq)

    @staticmethod
    def _completion(cq: driver.CQ) -> WC:
        with translated("completion"):
            return completion_of(cq.wait(timeout=inf)[0])

    # What there is not

    def post_ud_send(
        self,
        mr: MR,
        ah: object,
        rqpn: int = 0,
        flags: int = e.IBV_SEND_SIGNALED,
        length: int | None = None,
    ) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("post_ud_send", CONNECTED_ONLY)

    def join_multicast(
        self, addr: AddrInfo | None = None, mc_attr: object = None, context: int = 0
    ) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("join_multicast", CONNECTED_ONLY)

    def leave_multicast(self, addr: AddrInfo) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("leave_multicast", CONNECTED_ONLY)

    def set_option(self, level: int, optname: int, optval: int, optlen: int) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("set_option", "TCP has timers of its own, a QP has none")

    def set_local_ece(self, ece: object) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("set_local_ece", NO_ECE)

    def get_remote_ece(self) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("get_remote_ece", NO_ECE)

    # Life

    def close(self) -> None:
        """Closes what the id has: listener, request, QP, CQs and regions; then its device.

        A default device is open as long as an id uses it.
        """
        if self.event_channel is not None:
            self.event_channel.forget(self._next_request)
            self.event_channel.forget(self._end)
        with translated("close"):
            if self._listener is not None:
                self._listener.close()
            if self._request is not None:
                self._request.close()
            if self._qp is not None:
                self._qp.close()
            for each in (*self._cqs, *self._regions):
                each.close()
        self._closed = True
        self._cqs.clear()
        self._regions.clear()
        if self._shares:
            self._shares = False
            DEFAULT_DEVICES.give(self.context.name)

    def __del__(self) -> None:
        # What it has is freed as it is dropped itself.
        if self._shares and not sys.is_finalizing():
            DEFAULT_DEVICES.give_dropped(self.context.name)
            words = f"dropped open: {self!r}, which has device {self.context.name}"
            warnings.warn(words, ResourceWarning, stacklevel=1, source=self)
