"""Enumerations that the C++ of a compiled device shares with Python, as a header."""

from collections.abc import Iterable
from enum import IntEnum

from stagecoach.host_driver.transport.records import RecordKind
from stagecoach.hw.interface.llp import LlpEventKind
from stagecoach.sim.llp_messages import LlpMessage
from stagecoach.sim.status import Status

HEADER = "enums.h"

SHARED = (LlpEventKind, LlpMessage, RecordKind, Status)


def enum_header(kinds: Iterable[type[IntEnum]] = SHARED) -> str:
    """The text of the header; `RX_AVAILABLE` is `kRxAvailable` there."""
    lines = ["// Made by sim/runtime_enums.py.", "#pragma once", "", "namespace stagecoach {"]
    for kind in kinds:
        lines += ["", f"enum class {kind.__name__} : unsigned {{"]
        lines += [f"    k{_camel(member.name)} = {member.value}," for member in kind]
        lines.append("};")
    return "\n".join([*lines, "", "}  // namespace stagecoach", ""])


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
