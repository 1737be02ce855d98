"""The exceptions of MPA startup (RFC 5044, 7.1; RFC 6581)."""

from enum import StrEnum

from stagecoach.host_driver.errors import StagecoachError
from stagecoach.host_driver.transport.base import ByteStream


class StartupError(StagecoachError):
    """MPA startup failed; the TCP connection is closed. Its subclasses say why, most often."""


class StartupStep(StrEnum):
    """A step of MPA startup that has a timer (RFC 5044, 7.1.2 item 10)."""

    TCP_CONNECTION = "TCP connection"
    PEER = "peer that connects"
    REQUEST = "MPA Request frame"
    REPLY = "MPA Reply frame"
    FIRST_FPDU = "RTR frame"


class StartupTimeout(StartupError, TimeoutError):
    """A step of MPA startup took too long.

    Attributes
    ----------
    step: the `StartupStep`. seconds: what was allowed.
    peer: host and port of who was silent; `None` before there is a connection.
    """

    def __init__(
        self,
        step: StartupStep,
        seconds: float,
        detail: str,
        peer: tuple[str, int] | None = None,
    ):
        self.step = step
        self.seconds = seconds
        self.peer = peer
        who = "" if peer is None else " (peer {}:{})".format(*peer)
        super().__init__(f"{step}: not within {seconds:g} s: {detail}{who}")


class MalformedFrame(StartupError):
    """The peer sent an illegal startup frame: MPA error 4 (RFC 5044, 7.1.1 and 8)."""


class InitiatorInitiatorError(MalformedFrame):
    """A Request came where a Reply is due: both ends are Initiators (RFC 5044, 7.1.2 item 8)."""


_SHOWN_OCTETS = 64
"""Bytes of private data in the text of an error."""


class ConnectionRejected(StartupError):
    """The peer refused the connection (RFC 5044, 7.1.2).

    Attributes
    ----------
    private_data: what the peer sent with its refusal. revision: that of its Reply.
    ird, ord: its IRD, and the ORD that it needs (RFC 6581, 9.1); `None` if it did not say.
    stream: the open TCP connection, if `connect` was asked to keep it, else `None`.
    """

    def __init__(
        self,
        private_data: bytes,
        *,
        revision: int = 2,
        ird: int | None = None,
        ord: int | None = None,
        stream: ByteStream | None = None,
    ):
        self.private_data = private_data
        self.revision = revision
        self.ird, self.ord = ird, ord
        self.stream = stream
        shown = f"with private data {private_data[:_SHOWN_OCTETS]!r}"
        if len(private_data) > _SHOWN_OCTETS:
            shown += f" and {len(private_data) - _SHOWN_OCTETS} bytes more"
        if not private_data:
            shown = "without private data"
        super().__init__(f"the peer rejected the connection, {shown}")


class InsufficientIRD(StartupError):
    """One end needs more inbound Reads than the other has: MPA error 6 (RFC 6581, 8 and 9.1).

    Attributes
    ----------
    required: the ORD of the end that sends the Reads. available: the IRD of the other one.
    """

    def __init__(self, required: int, available: int, what: str, whose: str):
        self.required = required
        self.available = available
        super().__init__(f"{what}; allowed: 0 to {available}, the {whose} IRD")


class NoMatchingRTR(StartupError):
    """The ends have no RTR frame in common: MPA error 7 (RFC 6581, 8 and 9.2)."""


class ListenerClosed(StartupError):
    """The listener was closed, also while `get_request` waited."""
