"""What device and host share is described once: no enumeration or number is typed in two places."""

import ast
import importlib
import re
from collections import defaultdict
from functools import cache
from itertools import combinations
from pathlib import Path

from stagecoach.hw.interface.llp import LlpEventKind
from stagecoach.sim.runtime_header import runtime_header

FAST = True

ROOT = Path(__file__).parents[2]
ROOMS = ("gateware", "host_driver", "hw", "sim", "ulp", "cli")
OWN_VIEWS = ("sim/model/", "hw/formal/")
"""Written from the RFCs, apart from everything else."""


OF_THEIR_OWN = (
    {"hw/interface/wire.py: Opcode", "gateware/rdmap/transmit/inline.py: InlineKind"},
    {"ulp/nfs/mount.py: MountStatus", "ulp/nfs/status.py: NfsStatus"},
    {
        "host_driver/network_registers.py: NetworkOpcode",
        "gateware/tcp/layouts.py: TransmitOperation",
    },
    {"host_driver/network_registers.py: NetworkOpcode", "sim/llp_messages.py: LlpMessage"},
)
"""Pairs that have names in common and stand for different numbers: of the wire and of the gateware
alone; of two protocols (RFC 1813, 2.6 and 5.1.5); commands of a driver, and what they make one of
their blocks, or a simulation, do."""


OF_HEADERS = {("IPV4_OCTETS", 20), ("TCP_OCTETS", 20), ("PROTOCOL_TCP", 6)}
OF_HEADERS |= {("HEADERS_OCTETS", 40), ("WINDOW_FIELD_MOST", 0xFFFF)}
"""Of RFC 791 and RFC 9293: gateware, driver and captures read them by views of their own."""

NUMBERS_OF_THEIR_OWN = {("WORDS_AHEAD", 16), ("VERSION", 1)} | OF_HEADERS
"""Names and values that files have in common by chance: depths of two queues; of protocols."""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def python_name(name: str) -> str:
    """The name of C++ or Verilog in the spelling of Python."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removeprefix("k")).upper()


def enumerations() -> dict[str, set[str]]:
    """Members that an enumeration gives numbers to, by file and class."""
    found = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(OWN_VIEWS):
                continue
            for node in ast.walk(parsed(path)):
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
            found[name] = {python_name(member) for member in names}
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


def numbers_of_cpp(name: str) -> dict[str, int]:
    """Numbers of constants, whose names are in the spelling of Python."""
    typed = re.findall(r"\bconstexpr\b[^=;]*\bk(\w+)\s*=\s*(\d+)u?;", (ROOT / name).read_text())
    return {python_name(constant): int(number) for constant, number in typed}


def numbers_of_python(name: str, *, computed: bool) -> dict[str, int]:
    """Numbers of constants that are typed; those that are `computed`, too."""
    found = {}
    for line in parsed(ROOT / name).body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            constant = line.targets[0].id
            value = line.value.value if isinstance(line.value, ast.Constant) else None
            if computed:
                module = name.removesuffix(".py").replace("/", ".")
                value = getattr(importlib.import_module(f"stagecoach.{module}"), constant)
            if type(value) is int:
                found[constant.lstrip("_")] = value
    return found


def test_no_number_of_the_device_is_typed_again():
    typed, of_device = defaultdict(set), defaultdict(set)
    for room in (*ROOMS, "bench"):
        for path in sorted((ROOT / room).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(OWN_VIEWS) or path.suffix not in (".py", ".h", ".cpp"):
                continue
            cpp = path.suffix != ".py"
            numbers = numbers_of_cpp(name) if cpp else numbers_of_python(name, computed=False)
            for number in numbers.items():
                typed[number].add(name)
            if name.startswith(("gateware/", "hw/interface/")):
                for number in numbers_of_python(name, computed=True).items():
                    of_device[number].add(name)
    assert typed["CLOSE_OCTETS", 92] == {"hw/interface/llp.py"}
    assert typed["REQUESTS", 16] == {"sim/runtime/rnic/llp.h"}
    assert of_device["COUNTER_BITS", 36] == {"gateware/registers/counters.py"}
    again = {
        number: files | of_device[number]
        for number, files in typed.items()
        if number in of_device and len(files | of_device[number]) > 1
    }
    assert again.keys() == NUMBERS_OF_THEIR_OWN, again


def test_the_header_of_the_compiled_device_has_their_names_and_numbers():
    text = runtime_header({"CLOSE_OCTETS": 92}, (LlpEventKind,))
    assert "constexpr unsigned kCloseOctets = 92;\n" in text
    assert (
        "enum class LlpEventKind : unsigned {\n    kRxAvailable = 0,\n    kTxWindow = 1,\n" in text
    )
