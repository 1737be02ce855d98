"""Signals that a model of a port drives in every cycle."""

from collections.abc import Mapping
from typing import Any


class Drive:
    """Writes values to signals by name, only those that change: each write takes host time."""

    def __init__(self, signals: Mapping[str, Any]):
        self._signals = signals
        self._values: dict[str, int] = {}

    def __call__(self, **values: int) -> None:
        for name, value in values.items():
            if self._values.get(name) != value:
                self._values[name] = value
                self._signals[name].value = value
