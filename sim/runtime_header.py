"""What the C++ of a compiled device shares with Python, as a header."""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from stagecoach.host_driver.transport.records import RecordKind
from stagecoach.hw.interface.device_memory import DEVICE_MEMORY_BASE
from stagecoach.hw.interface.llp import CLOSE_OCTETS, LlpEventKind
from stagecoach.sim.irq import Irq
from stagecoach.sim.llp_messages import LlpMessage
from stagecoach.sim.status import Status
from stagecoach.sim.wire.clock import CYCLE_PS
from stagecoach.sim.wire.impairments import MINIMUM_FRAME, OVERHEAD

HEADER = "shared.h"

CONSTANTS = {
    "CLOSE_OCTETS": CLOSE_OCTETS,
    "CYCLE_PS": CYCLE_PS,
    "DEVICE_MEMORY_BASE": DEVICE_MEMORY_BASE,
    "FRAME_OVERHEAD": OVERHEAD,
    "MINIMUM_FRAME": MINIMUM_FRAME,
}
ENUMS = (Irq, LlpEventKind, LlpMessage, RecordKind, Status)


def runtime_header(
    constants: Mapping[str, int] = CONSTANTS, kinds: Iterable[type[IntEnum]] = ENUMS
) -> str:
    """The text of the header; `RX_AVAILABLE` is `kRxAvailable` there."""
    lines = ["// Made by sim/runtime_header.py.", "#pragma once", "", "namespace stagecoach {", ""]
    for name, value in constants.items():
        kind = "unsigned" if value < 1 << 32 else "unsigned long"
        lines.append(f"constexpr {kind} k{_camel(name)} = {value};")
    for each in kinds:
        lines += ["", f"enum class {each.__name__} : unsigned {{"]
        lines += [f"    k{_camel(member.name)} = {member.value}," for member in each]
        lines.append("};")
    return "\n".join([*lines, "", "}  // namespace stagecoach", ""])


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
