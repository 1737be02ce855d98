"""The options of `stagecoach verilog`."""

import argparse
from pathlib import Path
from typing import Any

from stagecoach.hw.verilog import OptionError, module_name, parse_device, parse_prefix

_FOLDER = Path("build") / "verilog"
"""Where the file is written, unless another place is named."""


def add_verilog(subparsers: Any) -> None:
    """Adds the command to those of a parser."""
    verilog = subparsers.add_parser(
        "verilog",
        help="write the device as one Verilog file",
        description="Writes the whole device, for designs of others, to one Verilog file, with a "
        "core file for FuseSoC beside it. Sizes are those of RnicConfig; those that are not named "
        "have their defaults. NIC=1 is the device with a TCP engine and an Ethernet port; it also "
        "has MTU.",
    )
    verilog.add_argument("sizes", nargs="*", metavar="SIZE=NUMBER", help="such as QPS=8 STAGS=64")
    verilog.add_argument(
        "--prefix",
        default="",
        help="text before the names of all modules, so that several devices fit into one design; "
        "no separator is added, so end it with one",
    )
    verilog.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help=f"{_FOLDER}/<name of the top module>.v, if it is not named",
    )
    verilog.set_defaults(check=_check, run=_run)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    try:
        options.config, options.mtu = parse_device(options.sizes)
        parse_prefix(options.prefix)
    except OptionError as error:
        parser.error(f"{error}")


def _run(options: argparse.Namespace) -> int:
    from stagecoach.cli.verilog import command

    output = options.output or _FOLDER / f"{options.prefix}{module_name(options.mtu)}.v"
    return command.verilog(options.config, options.prefix, output, options.mtu)
