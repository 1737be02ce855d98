"""The exceptions of the driver. A wrong argument is a `ValueError` or `TypeError` as usual."""

from enum import StrEnum
from typing import TYPE_CHECKING

from stagecoach.host_driver.terminate import Terminate, describe_code
from stagecoach.hw.interface.causes import CODES, Cause

if TYPE_CHECKING:
    from stagecoach.host_driver.transport.base import ByteStream


class StagecoachError(Exception):
    """Base of every error of the driver, `TransportError` of the transports among them."""


class DeviceError(StagecoachError):
    """The device refused a command or does not answer as its description says."""


class ResourceError(StagecoachError):
    """Nothing left of what was asked for: QPs, CQs, STags, or queue entries."""


class QuotaExceeded(ResourceError):
    """What was asked for is more than the quota of the Context allows.

    Attributes
    ----------
    quota: its name, an attribute of `Quota`. limit: its value. used: what is open. demand: what
        was asked for.
    """

    def __init__(self, quota: str, limit: int, used: int, demand: int):
        self.quota = quota
        self.limit = limit
        self.used = used
        self.demand = demand
        super().__init__(
            f"quota {quota} of the Context is {limit}: {used} in use, {demand} more asked for; "
            f"allowed: up to {max(0, limit - used)} more"
        )


class QPStateError(StagecoachError):
    """The QP is not in a state that allows the call."""


class QPError(StagecoachError):
    """The QP stopped with an error.

    Attributes
    ----------
    qp_num: number of the QP.
    cause: the check that failed first.
    terminate: what the peer complained about, if it ended the stream, else `None`.
    """

    def __init__(self, qp_num: int, cause: Cause, terminate: Terminate | None = None):
        self.qp_num = qp_num
        self.cause = cause
        self.terminate = terminate
        super().__init__(f"QP {qp_num} stopped: {describe(cause, terminate)}")


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
    """

    def __init__(self, step: StartupStep, seconds: float, detail: str):
        self.step = step
        self.seconds = seconds
        super().__init__(f"{step}: not within {seconds:g} s: {detail}")


class MalformedFrame(StartupError):
    """The peer sent what is no legal startup frame: MPA error 4 (RFC 5044, 7.1.1 and 8)."""


class InitiatorInitiatorError(MalformedFrame):
    """A Request came where a Reply is due: both ends are Initiators (RFC 5044, 7.1.2 item 8)."""


_SHOWN_OCTETS = 64
"""Octets of private data in the text of an error."""


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
        stream: "ByteStream | None" = None,
    ):
        self.private_data = private_data
        self.revision = revision
        self.ird, self.ord = ird, ord
        self.stream = stream
        shown = repr(private_data[:_SHOWN_OCTETS])
        if len(private_data) > _SHOWN_OCTETS:
            shown += f" and {len(private_data) - _SHOWN_OCTETS} octets more"
        super().__init__(f"the peer rejected the connection, private data {shown}")


class InsufficientIRD(StartupError):
    """One end needs more inbound Reads than the other has: MPA error 6 (RFC 6581, 8 and 9.1).

    Attributes
    ----------
    required: the ORD of the end that sends the Reads. available: the IRD of the other one.
    """

    def __init__(self, required: int, available: int, what: str):
        self.required = required
        self.available = available
        super().__init__(f"{what}; allowed: ORD 0 to {available}")


class NoMatchingRTR(StartupError):
    """The ends have no RTR frame in common: MPA error 7 (RFC 6581, 8 and 9.2)."""


class ListenerClosed(StartupError):
    """The listener was closed, also while `get_request` waited."""


class WaitTimeout(StagecoachError, TimeoutError):
    """Nothing came within the time that the caller allowed."""


def require_type(name: str, value: object, allowed: type) -> None:
    """Raises `TypeError` unless `value` is an instance of `allowed`."""
    if not isinstance(value, allowed):
        raise TypeError(f"{name} is a {type(value).__name__}; allowed: {allowed.__name__}")


def describe(cause: Cause, terminate: Terminate | None = None) -> str:
    """The cause in words, with its Terminate code or with what the peer's Terminate says."""
    code, words = CODES[cause]
    if terminate is not None:
        return f"{words}: {terminate.describe()}"
    return words if code is None else f"{words} ({describe_code(code)})"
