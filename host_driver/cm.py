"""The connection manager: MPA startup over a byte stream, then the stream belongs to the QP."""

import time
from typing import Self

from host_driver.context import Context
from host_driver.enums import QPState
from host_driver.errors import ConnectionRejected, StartupError, require_type
from host_driver.mpa_startup import (
    HEADER_OCTETS,
    StartupFrame,
    decode,
    limit_reads,
    private_data_length,
)
from host_driver.qp import QP
from host_driver.transport.base import ByteStream, Listener, TransportError

DEFAULT_TIMEOUT = 10.0
"""Seconds for the whole of MPA startup (RFC 5044, 7.1.2 item 10)."""

MINIMUM_EMSS = 128
MAXIMUM_EMSS = 65535


def _receive_frame(stream: ByteStream, *, reply: bool, timeout: float) -> StartupFrame:
    end = time.monotonic() + timeout
    name = "Reply" if reply else "Request"
    try:
        header = stream.receive_exactly(HEADER_OCTETS, timeout)
        length = private_data_length(header, reply=reply)
        left = max(0.0, end - time.monotonic())
        data = stream.receive_exactly(length, left) if length else b""
    except TransportError as error:
        raise StartupError(f"no MPA {name} frame from the peer: {error}") from error
    return decode(header, data, reply=reply)


def _emss(stream: ByteStream, emss: int | None) -> int:
    if emss is None:
        emss = min(stream.maximum_segment_size, MAXIMUM_EMSS)
    if not MINIMUM_EMSS <= emss <= MAXIMUM_EMSS:
        raise ValueError(f"EMSS {emss}; allowed: {MINIMUM_EMSS} to {MAXIMUM_EMSS}")
    return emss


def _reads(context: Context, value: int | None, name: str) -> int:
    limit = context.attr.max_qp_rd_atom
    if value is None:
        return limit
    if not 0 <= value <= limit:
        raise ValueError(f"{name} {value}; allowed: 0 to {limit}")
    return value


def connect(
    qp: QP,
    host: str,
    port: int,
    *,
    private_data: bytes = b"",
    crc: bool = True,
    emss: int | None = None,
    ord: int | None = None,
    ird: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> bytes:
    """Connects a QP as MPA Initiator and returns the private data of the Reply.

    Parameters
    ----------
    crc: whether this end wants CRCs; they are off only if neither end wants them.
    emss: largest TCP payload in octets; the connection's own if not given.
    ord, ird: RDMA Reads under way from this end, and towards it; the device's limit if not given.
    timeout: seconds for the connection and MPA startup together.

    Raises `ConnectionRejected` if the peer refuses, `StartupError` for everything else that
    goes wrong in startup.
    """
    qp.require(QPState.INIT)
    context = qp.context
    ord, ird = _reads(context, ord, "ORD"), _reads(context, ird, "IRD")
    request = StartupFrame(reply=False, crc=crc, ird=ird, ord=ord, private_data=private_data)
    octets = request.encode()
    end = time.monotonic() + timeout
    try:
        stream = context.transport.connect(host, port, timeout)
    except TransportError as error:
        raise StartupError(f"no connection to {host}:{port}: {error}") from error
    try:
        segment = _emss(stream, emss)
        stream.sendall(octets)
        left = max(0.0, end - time.monotonic())
        reply = _receive_frame(stream, reply=True, timeout=left)
        if reply.reject:
            raise ConnectionRejected(reply.private_data)
        if reply.markers:
            raise StartupError("the peer wants Markers, which this version does not send")
        qp.connect(
            stream,
            initiator=True,
            crc=crc or reply.crc,
            ord=limit_reads(ord, reply.ird),
            ird=ird,
            emss=segment,
        )
    except TransportError as error:
        stream.close()
        raise StartupError(f"MPA startup with {host}:{port}: {error}") from error
    except BaseException:
        stream.close()
        raise
    return reply.private_data


class ConnectionRequest:
    """A peer that sent a good MPA Request and waits for the Reply.

    Attributes
    ----------
    private_data: what the peer sent with its request.
    """

    def __init__(self, context: Context, stream: ByteStream, request: StartupFrame):
        self._context = context
        self._stream = stream
        self._request = request
        self.private_data = request.private_data

    def accept(
        self,
        qp: QP,
        *,
        private_data: bytes = b"",
        crc: bool = True,
        emss: int | None = None,
        ord: int | None = None,
        ird: int | None = None,
    ) -> None:
        """Accepts: sends the Reply and connects the QP as MPA Responder.

        The QP sends nothing before the first FPDU has arrived (RFC 5044, 7.1.2 item 4).
        Parameters as in `connect`.
        """
        require_type("qp", qp, QP)
        if qp.context is not self._context:
            raise ValueError("the QP is of another device; allowed: a QP of the listener's device")
        qp.require(QPState.INIT)
        ord, ird = _reads(self._context, ord, "ORD"), _reads(self._context, ird, "IRD")
        request = self._request
        segment = _emss(self._stream, emss)
        if request.markers:
            self.reject()
            raise StartupError("the peer wants Markers, which this version does not send")
        ord = limit_reads(ord, request.ird)
        crc = crc or request.crc
        reply = StartupFrame(
            reply=True,
            crc=crc,
            revision=request.revision,
            ird=ird if request.enhanced else None,
            ord=ord if request.enhanced else None,
            private_data=private_data,
        )
        octets = reply.encode()
        try:
            self._stream.sendall(octets)
            qp.connect(self._stream, initiator=False, crc=crc, ord=ord, ird=ird, emss=segment)
        except TransportError as error:
            self._stream.close()
            raise StartupError(f"MPA startup: {error}") from error
        except BaseException:
            self._stream.close()
            raise

    def reject(self, private_data: bytes = b"") -> None:
        """Refuses: sends a Reply that rejects, and closes."""
        request = self._request
        reply = StartupFrame(
            reply=True,
            reject=True,
            crc=request.crc,
            revision=request.revision,
            ird=0 if request.enhanced else None,
            ord=0 if request.enhanced else None,
            private_data=private_data,
        )
        try:
            self._stream.sendall(reply.encode())
        except TransportError:
            pass  # the peer has gone: nobody is left to be told
        finally:
            self._stream.close()


class ConnectionListener:
    """Waits for peers on a port.

    Parameters
    ----------
    context: the open device. host, port: where to listen; port 0 takes any free one.

    Attributes
    ----------
    port: the port in use.
    """

    def __init__(self, context: Context, host: str = "127.0.0.1", port: int = 0):
        require_type("context", context, Context)
        context.require_open()
        self._context = context
        self._listener: Listener = context.transport.listen(host, port)
        self.port = self._listener.address[1]

    def get_request(self, timeout: float = DEFAULT_TIMEOUT) -> ConnectionRequest:
        """The next peer that wants to connect.

        Raises `StartupError` if none comes within `timeout` seconds, or if the peer sends
        anything but an MPA Request; its connection is closed then.
        """
        end = time.monotonic() + timeout
        try:
            stream = self._listener.accept(timeout)
        except TransportError as error:
            raise StartupError(f"no connection on port {self.port}: {error}") from error
        try:
            left = max(0.0, end - time.monotonic())
            request = _receive_frame(stream, reply=False, timeout=left)
        except BaseException:
            stream.close()
            raise
        return ConnectionRequest(self._context, stream, request)

    def close(self) -> None:
        """Stops listening."""
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def listen(context: Context, host: str = "127.0.0.1", port: int = 0) -> ConnectionListener:
    """Listens for peers; see `ConnectionListener`."""
    return ConnectionListener(context, host, port)
