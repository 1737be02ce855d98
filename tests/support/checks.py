"""The cocotb tests of a module, by name."""

from collections.abc import Iterator, Mapping
from typing import Any


def checks_of(namespace: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Name, and rows of the requirement list, of every cocotb test that a module defines."""
    for check in namespace.values():
        # What `cocotb.test` makes of a function, whose type has no public name.
        if not hasattr(check, "generate_tests") or check.module != namespace["__name__"]:
            continue
        for test in check.generate_tests():
            ids = list(getattr(check, "shows", ()))
            for value in test.kwargs.values():
                ids += getattr(value, "shows", ())
            yield test.name, ids
