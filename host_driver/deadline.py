"""When a wait ends."""

import time


def end_of(timeout: float) -> float:
    """The value of `time.monotonic` in `timeout` seconds. Raises `TypeError` for no number."""
    try:
        return time.monotonic() + timeout
    except TypeError:
        raise TypeError(f"timeout is {timeout!r}; allowed: a number of seconds") from None
