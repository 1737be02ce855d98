"""The exceptions of the driver. A wrong argument is a `ValueError` or `TypeError` as usual."""

from hw.interface.causes import CODES, Cause


class StagecoachError(Exception):
    """Base of every error of the driver, `TransportError` of the transports among them."""


class DeviceError(StagecoachError):
    """The device refused a command or does not answer as its description says."""


class ResourceError(StagecoachError):
    """Nothing left of what was asked for: QPs, CQs, STags, or queue entries."""


class QPStateError(StagecoachError):
    """The QP is not in a state that allows the call."""


class QPError(StagecoachError):
    """The QP stopped with an error.

    Attributes
    ----------
    qp_num: number of the QP.
    cause: the check that failed first.
    """

    def __init__(self, qp_num: int, cause: Cause):
        self.qp_num = qp_num
        self.cause = cause
        super().__init__(f"QP {qp_num} stopped: {describe(cause)}")


class StartupError(StagecoachError):
    """MPA startup failed: a malformed frame, a closed connection, or no answer in time."""


class ConnectionRejected(StartupError):
    """The peer refused the connection (RFC 5044, 7.1.2).

    Attributes
    ----------
    private_data: what the peer sent with its refusal.
    """

    def __init__(self, private_data: bytes):
        self.private_data = private_data
        super().__init__(f"the peer rejected the connection, private data {private_data!r}")


class WaitTimeout(StagecoachError, TimeoutError):
    """Nothing came within the time that the caller allowed."""


def require_type(name: str, value: object, allowed: type) -> None:
    """Raises `TypeError` unless `value` is an instance of `allowed`."""
    if not isinstance(value, allowed):
        raise TypeError(f"{name} is a {type(value).__name__}; allowed: {allowed.__name__}")


def describe(cause: Cause) -> str:
    """The cause in words, with its Terminate code if it has one."""
    code, words = CODES[cause]
    if code is None:
        return words
    return f"{words} (layer {code.layer}, type {code.error_type}, code 0x{code.error_code:02X})"
