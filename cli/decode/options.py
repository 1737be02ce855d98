"""The options of `stagecoach decode`."""

import argparse
from typing import Any

from stagecoach.cli.options import number, parse_file
from stagecoach.sim.model.rdmap import Opcode

_OPCODES = {opcode.name.lower().replace("_", "-"): opcode for opcode in Opcode}
_MOST_CONNECTIONS = 1 << 31


def add_decode(subparsers: Any) -> None:
    """Adds the command to those of a parser."""
    decode = subparsers.add_parser(
        "decode",
        help="show the FPDUs of a packet capture",
        description="Shows every MPA startup frame and every FPDU of a pcap or pcapng file in one "
        "line of words: connection, message, where it goes, length, CRC, and what is wrong by "
        "which section of which RFC.",
    )
    decode.add_argument("file", type=parse_file, metavar="FILE", help="the capture")
    decode.add_argument("--json", action="store_true", help="print one JSON object per line")
    decode.add_argument(
        "--pager",
        action=argparse.BooleanOptionalAction,
        help="use the pager of STAGECOACH_PAGER or PAGER, else less (if the output is a terminal)",
    )
    shown = decode.add_argument_group(
        "what is shown", "An item is shown if it fits all of these options that are given."
    )
    shown.add_argument(
        "--connection",
        type=number("connection", 1, _MOST_CONNECTIONS),
        action="append",
        default=[],
        metavar="NUMBER",
        help="that of this number; may be given several times",
    )
    shown.add_argument(
        "--opcode",
        choices=_OPCODES,
        action="append",
        default=[],
        metavar="NAME",
        help=f"FPDUs of this one; may be given several times: {', '.join(_OPCODES)}",
    )
    shown.add_argument("--problems", action="store_true", help="what has something wrong with it")
    decode.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from stagecoach.cli.decode.command import decode
    from stagecoach.cli.decode.selection import Selection

    selection = Selection(
        frozenset(options.connection),
        frozenset(_OPCODES[name] for name in options.opcode),
        options.problems,
    )
    return decode(options.file, options.json, options.pager, selection)
