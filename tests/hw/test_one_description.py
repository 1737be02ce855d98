"""What device and host share is described once: no enumeration is typed in two places."""

import ast
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("gateware", "host_driver", "hw", "sim", "ulp", "cli")
OWN_VIEW = "sim/model/"
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
            if name.startswith(OWN_VIEW):
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
