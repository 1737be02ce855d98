"""The blocks of a device, each to be placed alone: found in the device, with its parameters."""

import importlib
import warnings
from collections.abc import Iterator
from typing import Any

from amaranth.hdl import Module, UnusedElaboratable
from amaranth.lib import wiring

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rnic import Rnic

# Only the blocks that are asked for are elaborated.
warnings.simplefilter("ignore", UnusedElaboratable)


class NoSuchBlock(Exception):
    """A name that no block of the device has; the message lists what is allowed."""


def submodules(component: Any) -> dict[str, wiring.Component]:
    """Named components that `component` is built of. Elaborates it, which can be done once."""
    module = component.elaborate(None)
    if not isinstance(module, Module):
        return {}
    return {
        name: submodule
        for name, (submodule, _) in module._named_submodules.items()
        if isinstance(submodule, wiring.Component)
    }


def blocks(config: RnicConfig) -> dict[str, wiring.Component]:
    """The device's blocks by name."""
    return submodules(Rnic(config))


def find(config: RnicConfig, name: str) -> wiring.Component:
    """A block by its place in the device or by its class.

    `name` is `block`, `block.submodule`, or `package.module[:Class]`, the first of that class in
    the device; without a class the first one that the module defines. A class that the device does
    not use, and that is named, is built with its defaults.
    """
    if name.startswith("stagecoach.gateware."):
        module, _, class_name = name.partition(":")
        for component in _walk(Rnic(config)):
            kind = type(component)
            if kind.__module__ == module and class_name in ("", kind.__name__):
                return component
        return _outside(module, class_name)
    component = Rnic(config)
    for part in name.split("."):
        parts = submodules(component)
        if part not in parts:
            raise NoSuchBlock(f"block {part!r} of {name!r}; allowed: {', '.join(parts)}")
        component = parts[part]
    return component


def _outside(module: str, class_name: str) -> wiring.Component:
    """A block that the device does not use, with its defaults."""
    try:
        found = getattr(importlib.import_module(module), class_name, None)
        component = found() if isinstance(found, type) else None
    except (ModuleNotFoundError, TypeError):
        component = None
    if isinstance(component, wiring.Component):
        return component
    raise NoSuchBlock(
        f"block {module}:{class_name} is not in the device; "
        "allowed: a class that it uses, or one that has defaults"
    )


def _walk(component: wiring.Component) -> Iterator[wiring.Component]:
    """All components below one; each is handed out before it is elaborated itself."""
    for submodule in submodules(component).values():
        yield submodule
        yield from _walk(submodule)
