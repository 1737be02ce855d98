"""When a wait ends."""

import time


def end_of(timeout: float) -> float:
    """The value of `time.monotonic` in `timeout` seconds, which may be infinite.

    Raises `TypeError` for no number, `ValueError` for one below 0 or NaN.
    """
    try:
        allowed = timeout >= 0
        end = time.monotonic() + timeout
    except TypeError:
        raise TypeError(f"timeout is {timeout!r}; allowed: a number of seconds") from None
    if not allowed:
        raise ValueError(f"timeout is {timeout} s; allowed: 0 or more, math.inf to wait for ever")
    return end
