"""When a wait ends."""

import time


def require_seconds(name: str, value: float) -> None:
    """Raises `TypeError` for no number, `ValueError` for one below 0 or NaN."""
    try:
        allowed = value >= 0
    except TypeError:
        raise TypeError(f"{name} is {value!r}; allowed: a number of seconds") from None
    if not allowed:
        raise ValueError(f"{name} is {value} s; allowed: 0 or more, math.inf to wait for ever")


def end_of(timeout: float) -> float:
    """The value of `time.monotonic` in `timeout` seconds; raises what `require_seconds` does."""
    require_seconds("timeout", timeout)
    return time.monotonic() + timeout
