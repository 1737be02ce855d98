"""The exceptions of the driver. A wrong argument is a `ValueError` or `TypeError` as usual."""

from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.terminate import Terminate, describe_code
from stagecoach.hw.interface.causes import CODES, Cause


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


class NoDeviceMemory(ResourceError):
    """The device has no memory of its own, or none that its transport reaches."""

    def __init__(self) -> None:
        super().__init__(
            "the device has no memory of its own; allowed: a board with memory, or a simulated "
            "device with memory=256MiB"
        )


class DeviceMemoryExhausted(ResourceError):
    """The device's own memory has no room for the buffer.

    Attributes
    ----------
    demand: bytes that were asked for. free: bytes that no buffer has. longest: of these, one after
        the other. size: of the memory.
    """

    def __init__(self, demand: int, *, free: int, longest: int, size: int):
        self.demand = demand
        self.free = free
        self.longest = longest
        self.size = size
        super().__init__(
            f"device memory of {demand} bytes; allowed: up to {longest}, the longest part that is "
            f"free ({free} of {size} bytes are)"
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
    stream_end: how the TCP connection ended, if that is why and the device has a network that
        knows, else `None`.
    """

    def __init__(
        self,
        qp_num: int,
        cause: Cause,
        terminate: Terminate | None = None,
        stream_end: StreamEnd | None = None,
    ):
        self.qp_num = qp_num
        self.cause = cause
        self.terminate = terminate
        self.stream_end = stream_end
        super().__init__(f"QP {qp_num} stopped: {describe(cause, terminate, stream_end)}")


class WaitTimeout(StagecoachError, TimeoutError):
    """Nothing came within the time that the caller allowed."""


def require_type(name: str, value: object, allowed: type) -> None:
    """Raises `TypeError` unless `value` is an instance of `allowed`."""
    if not isinstance(value, allowed):
        raise TypeError(f"{name} is a {type(value).__name__}; allowed: {allowed.__name__}")


def require_integer(name: str, value: object) -> None:
    """Raises `TypeError` unless `value` is an integer, of numpy or of any other type."""
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}; allowed: an integer")


def describe(
    cause: Cause, terminate: Terminate | None = None, stream_end: StreamEnd | None = None
) -> str:
    """The cause in words, with its Terminate code or with what the peer's Terminate says.

    Where it is known how the TCP connection ended, that too.
    """
    code, words = CODES[cause]
    if stream_end is not None:
        words += f": {stream_end.words}"
    if terminate is not None:
        return f"{words}: {terminate.describe()}"
    return words if code is None else f"{words} ({describe_code(code)})"
