"""What device and host share is described once: no enumeration is typed in two places."""

import ast
import re
from itertools import combinations
from pathlib import Path

from stagecoach.hw.interface.llp import LlpEventKind
from stagecoach.sim.runtime_enums import enum_header

ROOT = Path(__file__).parents[2]
ROOMS = ("gateware", "host_driver", "hw", "sim", "ulp", "cli")
OWN_VIEWS = ("sim/model/", "hw/formal/")
"""Written from the RFCs, apart from everything else."""


OF_THEIR_OWN = (
    {"gateware/rdmap/headers.py: Opcode", "hw/interface/queue_entries.py: SendOpcode"},
    {"gateware/rdmap/headers.py: Opcode", "gateware/rdmap/transmit/inline.py: InlineKind"},
    {"ulp/nfs/mount.py: MountStatus", "ulp/nfs/status.py: NfsStatus"},
)
"""Pairs that have names in common and stand for different numbers: of the wire and of a queue
entry; of the wire and of the gateware alone; of two protocols (RFC 1813, 2.6 and 5.1.5)."""


def enumerations() -> dict[str, set[str]]:
    """Members that an enumeration gives numbers to, by file and class."""
    found = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(OWN_VIEWS):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and "Enum" in ast.unparse(node).split(":")[0]:
                    found[f"{name}: {node.name}"] = {
                        target.id
                        for line in node.body
                        if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant)
                        for target in line.targets
                        if isinstance(target, ast.Name) and isinstance(line.value.value, int)
                    }
    return found


def test_no_enumeration_is_typed_twice():
    found = enumerations()
    assert len(found) > 20
    same = [
        (one, other, found[one] & found[other])
        for one, other in combinations(found, 2)
        if len(found[one] & found[other]) > 2 and {one, other} not in OF_THEIR_OWN
    ]
    assert not same


def other_enumerations() -> dict[str, set[str]]:
    """Members that C++ and Verilog give numbers to, by file, in the spelling of Python."""
    found = {}
    for room in (*ROOMS, "examples"):
        for path in sorted((ROOT / room).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix not in (".h", ".cpp", ".c", ".v", ".sv") or name.startswith(OWN_VIEWS):
                continue
            text = path.read_text()
            bodies = re.findall(r"\benum\b[^{;]*\{([^}]*)\}|\blocalparam\b([^;]*);", text)
            names = re.findall(r"\b(\w+)\s*=\s*(?:\d+'d)?\d+\b", " ".join(map(" ".join, bodies)))
            snake = {
                re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removeprefix("k")) for name in names
            }
            found[name] = {member.upper() for member in snake}
    return found


def test_no_enumeration_is_typed_again_in_another_language():
    others = other_enumerations()
    assert others["examples/integration/memory.v"] >= {"OKAY", "DECERR"}
    same = [
        (one, other, members & others[other])
        for one, members in enumerations().items()
        for other in others
        if len(members & others[other]) > 2
    ]
    assert not same


def test_the_header_of_the_compiled_device_has_their_names_and_numbers():
    text = enum_header((LlpEventKind,))
    assert (
        "enum class LlpEventKind : unsigned {\n    kRxAvailable = 0,\n    kTxWindow = 1,\n" in text
    )
