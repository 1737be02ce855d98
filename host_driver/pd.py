"""Protection Domains."""

from typing import Self
from weakref import WeakKeyDictionary

from stagecoach.host_driver.context import Context
from stagecoach.host_driver.dropped import Droppable, Open
from stagecoach.host_driver.errors import require_type


class PD(Droppable):
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
        # Regions, QPs and SRQs that are open; the number is free only when none is left.
        self.children: WeakKeyDictionary[Open, None] = WeakKeyDictionary()
        context._adopt(self)
        self._opened(context)

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
                children = list(self.children)
                if not children:
                    self._closed = True
                    self.context.resources.give_pd(self.number)
                    self.context._forget(self)
                    return
            # A QP may wait for its peer: not with the lock.
            children.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
