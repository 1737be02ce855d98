"""The properties, in a file for each folder or block of `gateware`.

Each module has a tuple `PROPERTIES`. Those of the streams are found in the device, by `streams`.
"""

import importlib
import pkgutil

from stagecoach.hw.formal.property import Property


def properties_of(module: str) -> tuple[Property, ...]:
    """Those of one module."""
    found: tuple[Property, ...] = importlib.import_module(f"{__name__}.{module}").PROPERTIES
    return found


def all_properties() -> dict[str, tuple[Property, ...]]:
    """Everything that `make formal` proves, by the module that has it."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found = {name: properties_of(name) for name in names}
    keys = [each.key for properties in found.values() for each in properties]
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"property {key!r} is there {keys.count(key)} times; allowed: once")
    return found
