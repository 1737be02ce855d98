"""The device as one self-contained Verilog file, for designs of others.

`stagecoach verilog QPS=8 STAGS=64` (`make verilog`) takes the sizes of `RnicConfig` by name; those
that are not named have their defaults. With `NIC=1` it is the NIC, and `MTU` is one of its sizes.
The file is the text that the compiled simulation is built from, with comments (`verilog_notes`),
inside of a module with the ports (`verilog_top`).
"""

import dataclasses
import importlib.metadata
import json
import re
from collections.abc import Sequence
from typing import Any

from stagecoach.gateware.config import RnicConfig
from stagecoach.hw.cached_verilog import NIC_TOP, TOP, export_nic_verilog, export_verilog
from stagecoach.hw.interface.sizes import MTU, MTUS

MODULE, NIC_MODULE = "stagecoach_rnic", "stagecoach_nic"
"""Names of the top modules without prefix; all others have names that begin with it and a dot."""

NIC_DATA_WIDTH = 64

LINT_OFF = (
    ("DECLFILENAME", "one file holds all modules"),
    ("UNUSEDSIGNAL", "a struct is one vector, and not every block uses all of its fields"),
    ("WIDTHEXPAND", "Yosys leaves it to the rules of Verilog to extend operands with zeros,"),
    ("WIDTHTRUNC", "and a number to its truth value; Amaranth has made all widths explicit"),
    ("PROCASSINIT", "the value of a register before its reset"),
    ("CASEINCOMPLETE", "every variable has its default before the case statement"),
    ("UNSIGNED", "comparisons with a bound that the sizes of this device make constant"),
    ("CMPCONST", "the same"),
    ("VARHIDDEN", "instances are named as signals inside of them, in other modules"),
    ("ASCRANGE", "a vector [-1:0] is one without bits: the address of a memory of one word"),
    ("INITIALDLY", "lets each process run at time 0, also if none of its inputs ever changes"),
)
"""Warnings of Verilator that say nothing about this file, and why."""

NOTICE = """\
// Stagecoach: an iWARP RNIC. BSD-2-Clause. Made by `make verilog`; do not edit.
//
// {sizes}
//
// Ports, clock, reset and the rules of the ports: docs/integration.md.
// With the macro {macro} a simulation has the name of each state in text,
// as `fsm_state.name` beside `fsm_state`.
"""

CORE = """\
CAPI=2:
# Made by `make verilog`; do not edit. {sizes}
name: "::{module}:{version}"
description: "Stagecoach, an iWARP RNIC"
filesets:
  rtl:
    files: [{file}]
    file_type: verilogSource-2005
targets:
  default: &default
    filesets: [rtl]
    toplevel: {module}
  lint:
    <<: *default
    flow: lint
    flow_options:
      tool: verilator
      verilator_options: [-Wall]
"""
"""The core file of FuseSoC: https://fusesoc.readthedocs.io/en/stable/ref/capi2.html"""


class OptionError(ValueError):
    """A size or prefix that is unknown or not allowed; the message says what is."""


def module_name(mtu: int | None) -> str:
    """Name of the top module without its prefix."""
    return MODULE if mtu is None else NIC_MODULE


def device_verilog(config: RnicConfig, prefix: str = "", mtu: int | None = None) -> str:
    """The Verilog of the whole device; it depends on nothing else.

    prefix: of the names of all modules, so that several devices fit into one design.
    mtu: of a NIC; without it the device is the RNIC alone.
    """
    from stagecoach.gateware.nic import RnicNic  # with Amaranth
    from stagecoach.gateware.rnic import Rnic
    from stagecoach.hw.verilog_notes import STATE_NAMES, annotate, notes
    from stagecoach.hw.verilog_top import top_module

    module = f"{parse_prefix(prefix)}{module_name(mtu)}"
    component: Rnic | RnicNic
    if mtu is None:
        top, component, exported = TOP, Rnic(config), export_verilog(config)
    else:
        top, component = NIC_TOP, RnicNic(config, mtu)
        exported = export_nic_verilog(config, mtu)
    device = rf"\{module}.{top}"
    text = annotate(exported, notes(component, top))
    text = start_processes(text).replace(f"module {top}(", f"module {device} (")
    text = text.replace(rf"\{top}.", f"{device}.")
    width = max(len(name) for name, _ in LINT_OFF)
    pragmas = "\n".join(
        f"/* verilator lint_off {name} */{' ' * (width - len(name))} // {why}"
        for name, why in LINT_OFF
    )
    return "\n".join(
        [
            NOTICE.format(sizes=_sizes(config, mtu), macro=STATE_NAMES),
            "/* verilator lint_save */",
            pragmas,
            top_module(component.signature, module, device),
            text,
            "/* verilator lint_restore */\n",
        ]
    )


def core_file(config: RnicConfig, prefix: str, file: str, mtu: int | None = None) -> str:
    """What FuseSoC has to know of an exported file in the same folder."""
    return CORE.format(
        module=f"{prefix}{module_name(mtu)}",
        version=importlib.metadata.version("stagecoach"),
        sizes=_sizes(config, mtu),
        file=json.dumps(file),
    )


def _sizes(config: RnicConfig, mtu: int | None) -> str:
    sizes = dataclasses.asdict(config) | ({} if mtu is None else {"mtu": mtu})
    return ", ".join(f"{name} {value}" for name, value in sizes.items())


def start_processes(verilog_text: str) -> str:
    """Make every `always @*` run at time 0, also if none of its inputs ever changes.

    Yosys lets nearly all of them read a variable with an initial value. In Verilog-2005 that is an
    assignment at time 0; in SystemVerilog, which cocotb's runner and its waveforms need, the
    variable has its value before any process waits for it. `always_comb` is no way out: Icarus
    11.0 may run such processes for ever (https://github.com/steveicarus/iverilog/issues/508).
    """
    text, variables = re.subn(
        r"^  reg (\\\$auto\$verilog_backend\S+)  = 0;$",
        r"  reg \1 ; initial \1 <= 0;",
        verilog_text,
        flags=re.MULTILINE,
    )
    if "always @* begin" in text and not variables:
        raise RuntimeError("Yosys has written processes without a variable that starts them")
    # Processes of one assignment get no variable from Yosys.
    text, single = re.subn(
        r"^  always @\*\n    (\S.*;)$",
        r"  always @* begin\n    if (_start) begin end\n    \1\n  end",
        text,
        flags=re.MULTILINE,
    )
    if single:
        declaration = r"\1\n  reg _start; initial _start <= 0;"
        text = re.sub(r"^(module [^;]*;)$", declaration, text, flags=re.MULTILINE)
    return text


def parse_sizes(arguments: Sequence[str]) -> RnicConfig:
    """The configuration of arguments such as `QPS=8`; `OptionError` names what is wrong."""
    names = [field.name for field in dataclasses.fields(RnicConfig)]
    sizes: dict[str, Any] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name.lower() not in names or not equals:
            allowed = ", ".join(f"{known.upper()}=" for known in (*names, "nic", "mtu"))
            raise OptionError(f"{argument!r} is not a size of the device; allowed: {allowed}")
        try:
            sizes[name.lower()] = int(value, 0)
        except ValueError:
            raise OptionError(f"{name} is {value!r}; allowed: a whole number") from None
    try:
        return RnicConfig(**sizes)
    except ValueError as error:
        raise OptionError(str(error)) from None


def parse_device(arguments: Sequence[str]) -> tuple[RnicConfig, int | None]:
    """The configuration, and the MTU if `NIC=1` is among the arguments.

    `OptionError` names what is wrong.
    """
    own = {"NIC": "0", "MTU": str(MTU)}
    sizes = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if equals and name.upper() in own:
            own[name.upper()] = value
        else:
            sizes.append(argument)
    config = parse_sizes(sizes)
    if own["NIC"] not in ("0", "1"):
        raise OptionError(f"NIC is {own['NIC']!r}; allowed: 0, 1")
    if own["NIC"] == "0":
        if own["MTU"] != str(MTU):
            raise OptionError(f"MTU is {own['MTU']!r}, and only a NIC has one; allowed: with NIC=1")
        return config, None
    allowed = f"{MTUS[0]} to {MTUS[-1]}"
    try:
        mtu = int(own["MTU"], 0)
    except ValueError:
        raise OptionError(f"MTU is {own['MTU']!r}; allowed: {allowed}") from None
    if mtu not in MTUS:
        raise OptionError(f"MTU is {mtu}; allowed: {allowed}")
    if config.data_width != NIC_DATA_WIDTH:
        raise OptionError(f"DATA_WIDTH of a NIC is {config.data_width}; allowed: {NIC_DATA_WIDTH}")
    return config, mtu


def parse_prefix(text: str) -> str:
    """A prefix of the names of modules; `OptionError` says what is allowed."""
    if not re.fullmatch(r"([A-Za-z_]\w*)?", text, re.ASCII):
        allowed = "letters, digits and _, the first one no digit"
        raise OptionError(f"PREFIX is {text!r}; allowed: {allowed}")
    return text
