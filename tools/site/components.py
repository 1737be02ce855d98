"""The directive `components`: all components of a package of the gateware, by autodoc."""

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from amaranth.lib.wiring import Component, Signature
from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from sphinx.util.inspect import signature, stringify_signature


def modules_of(package: str) -> Iterator[ModuleType]:
    """A package and its modules, those of packages in it included."""
    found = import_module(package)
    yield found
    for module in pkgutil.walk_packages(getattr(found, "__path__", []), f"{package}."):
        yield import_module(module.name)


def components_of(package: str) -> list[type]:
    """The public components and port signatures of a package, in the order of their modules."""
    return [
        thing
        for module in modules_of(package)
        for name, thing in vars(module).items()
        if inspect.isclass(thing)
        and issubclass(thing, Component | Signature)
        and thing.__module__ == module.__name__
        and not name.startswith("_")
    ]


class Components(SphinxDirective):
    """`.. components:: PACKAGE`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """What autodoc makes of each class."""
        lines = [
            f".. autoclass:: {thing.__module__}.{thing.__qualname__}"
            for thing in components_of(self.arguments[0])
        ]
        return self.parse_text_to_nodes("\n\n".join(lines))


def show_constructor(
    _app: Any, _what: str, _name: str, thing: Any, _options: Any, _text: str, _returned: str
) -> tuple[str, str] | None:
    """Handler of `autodoc-process-signature`: a component has the parameters of its constructor.

    Autodoc takes them from `Elaboratable.__new__`, which takes all.
    """
    if not (inspect.isclass(thing) and issubclass(thing, Component)):
        return None
    if "__init__" not in vars(thing):
        return "()", ""
    constructor = signature(thing.__init__, bound_method=True)
    return stringify_signature(constructor, unqualified_typehints=True), ""
