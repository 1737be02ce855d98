"""Open objects by their number."""

from typing import TypeVar
from weakref import WeakValueDictionary

_Object = TypeVar("_Object")


class ByNumber(WeakValueDictionary[int, _Object]):
    """Keeps nothing open; its repr has what it has."""

    def __repr__(self) -> str:
        return repr(dict(self))
