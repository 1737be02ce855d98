"""Every block of the gateware, by its class."""

import importlib
import pkgutil
from collections.abc import Iterator

from amaranth.lib import wiring

from stagecoach import gateware


def component_classes() -> Iterator[type[wiring.Component]]:
    """Yield the classes of blocks in the order of their files."""
    for module in pkgutil.walk_packages(gateware.__path__, f"{gateware.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, wiring.Component):
                if value.__module__ == module.name:
                    yield value
