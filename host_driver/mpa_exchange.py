"""MPA startup frames over a byte stream, every step with its timer (RFC 5044, 7.1.2)."""

import time

from stagecoach.host_driver.mpa_errors import (
    MalformedFrame,
    StartupError,
    StartupStep,
    StartupTimeout,
)
from stagecoach.host_driver.mpa_startup import StartupFrame, missing_octets
from stagecoach.host_driver.transport.base import (
    ByteStream,
    StreamClosed,
    Transport,
    TransportError,
    TransportTimeout,
)

DEFAULT_TIMEOUT = 10.0
"""Seconds for the whole of MPA startup, and for a Request alone (RFC 5044, 7.1.2 item 10)."""

MAXIMUM_TIMEOUT = 1_000_000.0


class Deadline:
    """The end of a time that began when this was made.

    Raises `ValueError`, which calls it `name`, unless `seconds` is from 0 to 1,000,000, and
    `TypeError` if it is no number.
    """

    def __init__(self, seconds: float, name: str = "timeout"):
        try:
            allowed = 0 <= seconds <= MAXIMUM_TIMEOUT
        except TypeError:
            raise TypeError(f"{name} is {seconds!r}; allowed: a number of seconds") from None
        if not allowed:
            raise ValueError(f"{name} is {seconds} s; allowed: 0 to {MAXIMUM_TIMEOUT:.0f}")
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self._end - time.monotonic())


class FrameReader:
    """Takes one startup frame out of a stream, and not a byte more.

    Bytes are judged as they come: a peer that speaks another protocol is found out by its first
    ones, however many there are and however slowly they come.

    Parameters
    ----------
    reply: whether a Reply is due, else a Request. enhanced: whether it answers a Request of
        RFC 6581, which a peer of RFC 5044 alone ends without an answer (RFC 6581, 10).
    """

    def __init__(self, stream: ByteStream, *, reply: bool, enhanced: bool = False):
        self._stream = stream
        self._reply = reply
        self._enhanced = enhanced
        self._octets = b""

    def read(self, deadline: Deadline) -> StartupFrame:
        """Waits for the frame.

        Raises `MalformedFrame`, `StartupTimeout`, or `StartupError` if the peer has gone.
        """
        frame = self._advance(deadline)
        if frame is None:
            raise self.timeout(deadline.seconds)
        return frame

    def poll(self) -> StartupFrame | None:
        """The frame if it is complete by now; raises as `read`, but for `StartupTimeout`."""
        return self._advance(None)

    def _advance(self, deadline: Deadline | None) -> StartupFrame | None:
        while missing := missing_octets(self._octets, reply=self._reply):
            try:
                self._octets += self._receive(missing, deadline.left if deadline else 0.0)
            except TransportTimeout:
                return None
            except StreamClosed as error:
                raise self._ended(error) from error
            except TransportError as error:
                raise StartupError(f"{self._step}: {error}") from error
        return StartupFrame.decode(self._octets, reply=self._reply)

    def _receive(self, count: int, seconds: float) -> bytes:
        """Up to `count` bytes: as many as are there, or the next one."""
        try:
            return self._stream.receive_exactly(count, 0.0)
        except (TransportTimeout, StreamClosed):
            first = self._stream.receive_exactly(1, seconds)
        try:
            return first + self._stream.receive_exactly(count - 1, 0.0)
        except (TransportTimeout, StreamClosed):
            # Fewer came: each is looked at before the next is waited for.
            return first

    @property
    def _step(self) -> StartupStep:
        return StartupStep.REPLY if self._reply else StartupStep.REQUEST

    @property
    def progress(self) -> str:
        """How far the frame has come, in words."""
        missing = missing_octets(self._octets, reply=self._reply)
        return f"{len(self._octets)} bytes came, {missing} or more are missing"

    def timeout(self, seconds: float) -> StartupTimeout:
        """The error for a frame that took longer."""
        return StartupTimeout(self._step, seconds, self.progress, self._stream.peer_address)

    def _ended(self, error: StreamClosed) -> StartupError:
        text = f"{self._step}: the stream ended: {self.progress}: {error}"
        # A frame that is cut off is malformed; before its first byte there is none.
        if self._octets:
            return MalformedFrame(text)
        if self._enhanced:
            text += "; perhaps because a peer without RFC 6581 takes a Request of revision 1 alone"
        return StartupError(text)


def open_stream(transport: Transport, host: str, port: int, deadline: Deadline) -> ByteStream:
    """A TCP connection to a peer."""
    try:
        return transport.connect(host, port, deadline.left)
    except TransportTimeout as error:
        raise StartupTimeout(StartupStep.TCP_CONNECTION, deadline.seconds, str(error)) from error
    except TransportError as error:
        raise StartupError(f"{StartupStep.TCP_CONNECTION}: {error}") from error


def send_octets(stream: ByteStream, octets: bytes, step: StartupStep, deadline: Deadline) -> None:
    """Sends an encoded frame."""
    try:
        stream.sendall(octets, deadline.left)
    except TransportTimeout as error:
        raise StartupTimeout(step, deadline.seconds, str(error), stream.peer_address) from error
    except TransportError as error:
        raise StartupError(f"{step}: {error}") from error


def require_quiet(stream: ByteStream) -> None:
    """Raises if the Initiator did anything after its Request but wait for the Reply."""
    try:
        octet = stream.receive_exactly(1, 0.0)
    except TransportTimeout:
        return
    except TransportError as error:
        raise StartupError(f"{StartupStep.REPLY}: the peer has gone: {error}") from error
    raise MalformedFrame(
        f"the peer sent {octet!r} and maybe more between its Request and the Reply; "
        "allowed: nothing (RFC 5044, 7.1.1)"
    )


def await_first_fpdu(stream: ByteStream, deadline: Deadline) -> None:
    """Waits for the first bytes of the Initiator's first FPDU, which stay in the stream."""
    try:
        stream.wait_readable(deadline.left)
    except TransportTimeout as error:
        raise StartupTimeout(
            StartupStep.FIRST_FPDU, deadline.seconds, str(error), stream.peer_address
        ) from error
    except TransportError as error:
        raise StartupError(f"{StartupStep.FIRST_FPDU}: {error}") from error
