"""The properties, in a file for each folder or block of `gateware`.

Each module has a tuple `PROPERTIES`. Those of the streams are found in the device, by `streams`.
"""

import importlib
import pkgutil

from hw.formal.property import Property


def all_properties() -> tuple[Property, ...]:
    """Everything that `make formal` proves."""
    found: list[Property] = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        found += importlib.import_module(f"{__name__}.{module.name}").PROPERTIES
    keys = [each.key for each in found]
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"property {key!r} is there {keys.count(key)} times; allowed: once")
    return tuple(found)
