"""What all objects have in common, and how errors of the driver become those of pyverbs."""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from stagecoach.host_driver import (
    ConnectionRejected,
    DeviceClosed,
    QPStateError,
    ResourceError,
    StagecoachError,
    StartupError,
    inc_rkey,
)
from stagecoach.pyverbs.pyverbs_error import PyverbsRDMAError

__all__ = [
    "PyverbsCM",
    "PyverbsObject",
    "absent",
    "inc_rkey",
    "shown",
    "translated",
    "unsupported",
]


class PyverbsObject:
    """An object of pyverbs: it has a logger with the name of its class."""

    @property
    def logger(self) -> logging.Logger:
        """The logger of the class."""
        return logging.getLogger(type(self).__name__)

    def set_log_level(self, val: int) -> None:
        """Sets the level of the logger."""
        self.logger.setLevel(val)


class PyverbsCM(PyverbsObject):
    """An object that is closed at the end of a `with` block."""

    def close(self) -> None:
        """Frees what the object holds; may be called again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def shown(of: PyverbsObject, *names: str) -> str:
    """The repr of an object that is described by these attributes, as that of a dataclass."""
    values = ", ".join(f"{name.lstrip('_')}={getattr(of, name)!r}" for name in names)
    return f"{type(of).__name__}({values})"


_CODES: tuple[tuple[type[Exception], int], ...] = (
    (ConnectionRejected, errno.ECONNREFUSED),
    (TimeoutError, errno.ETIMEDOUT),
    (DeviceClosed, errno.ENODEV),
    (ResourceError, errno.ENOMEM),
    (QPStateError, errno.EINVAL),
    (ValueError, errno.EINVAL),
    (StartupError, errno.ECONNABORTED),
    (StagecoachError, errno.EIO),
)
"""The errno of an exception: that of the first class that it is of."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raises `PyverbsRDMAError`, which names the call, for an error of the driver.

    A wrong type stays a `TypeError`, as in pyverbs.
    """
    try:
        yield
    except (StagecoachError, ValueError) as error:
        raise PyverbsRDMAError(f"{what}: {error}", _code_of(error)) from error


def _code_of(error: Exception) -> int:
    """The errno of an exception. A TCP connection that was refused may be the cause of it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return errno.ECONNREFUSED
        cause = cause.__cause__
    return next(code for kind, code in _CODES if isinstance(error, kind))


def unsupported(what: str, why: str) -> PyverbsRDMAError:
    """The error of what the device does not have."""
    return PyverbsRDMAError(f"{what} is not supported: {why}", errno.EOPNOTSUPP)


def absent(name: str, why: str) -> Any:
    """A class that can be imported, and raises `unsupported` when an object is made of it."""

    def refuse(_: object, *args: object, **kwargs: object) -> None:
        raise unsupported(name, why)

    return type(name, (PyverbsCM,), {"__init__": refuse, "__doc__": f"Not supported: {why}."})
