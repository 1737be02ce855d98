"""Protection Domains."""

from collections.abc import Callable
from typing import Self

from stagecoach.host_driver.context import Context
from stagecoach.host_driver.errors import require_type


class PD:
    """A Protection Domain: a QP reaches only the memory regions of its own PD.

    Parameters
    ----------
    context: the open device.
    """

    def __init__(self, context: Context):
        require_type("context", context, Context)
        self.context = context
        with context.lock:
            context._require_open()
            self.number = context.resources.take_pd()
        self._closed = False
        # Regions and QPs that are open; the number is free only when none is left.
        self.children: dict[Callable[[], None], None] = {}
        context._on_close(self.close)

    def __repr__(self) -> str:
        return f"<PD {self.number}{', closed' if self._closed else ''}>"

    def _require_open(self) -> None:
        """Raises `ValueError` if the PD is closed: its number may be that of another one."""
        if self._closed:
            raise ValueError(f"PD {self.number} is closed; allowed: an open PD")

    def close(self) -> None:
        """Frees the PD; closes its QPs and regions before, last one first."""
        while True:
            with self.context.lock:
                if self._closed:
                    return
                if not self.children:
                    self._closed = True
                    self.context.resources.give_pd(self.number)
                    self.context._forget_close(self.close)
                    return
                close_last = next(reversed(self.children))
            # A QP may wait for its peer: not with the lock.
            close_last()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
