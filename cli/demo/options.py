"""The options of `stagecoach demo`."""

import argparse
from pathlib import Path
from typing import Any

from stagecoach.cli.options import (
    DEFAULT_EMSS,
    add_device,
    add_startup,
    check_startup,
    parse_emss,
    parse_file,
    parse_size,
    startup_options,
)

_STARTUP_SECONDS = 60.0
"""Two devices may be built meanwhile."""

MAXIMUM_LOSS = 0.2


def parse_loss(text: str) -> float:
    """How much of all frames is lost, for argparse."""
    try:
        loss = float(text)
    except ValueError:
        loss = -1.0
    if not 0 <= loss <= MAXIMUM_LOSS:
        raise argparse.ArgumentTypeError(f"loss is {text!r}; allowed: 0 to {MAXIMUM_LOSS}")
    return loss


def add_demo(subparsers: Any) -> None:
    """Adds the command to those of a parser."""
    demo = subparsers.add_parser(
        "demo",
        help="move a file between two simulated devices",
        description="Moves a file between two simulated devices in two processes, joined by a TCP "
        "connection: RDMA Writes there, RDMA Reads back, Sends with its SHA-256. Leaves "
        "the capture demo.pcapng.",
    )
    demo.add_argument("file", nargs="?", type=parse_file, metavar="FILE", help="what to move")
    demo.add_argument("--waves", action="store_true", help="leave the waveform demo.fst, too")
    demo.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("build"),
        metavar="FOLDER",
        help="where the capture and the waveform go (%(default)s)",
    )
    demo.add_argument(
        "--size",
        type=parse_size,
        metavar="SIZE",
        help="of generated data, if no FILE is given (4MiB; with --waves 64KiB)",
    )
    demo.add_argument(
        "--emss",
        type=parse_emss,
        default=DEFAULT_EMSS,
        metavar="BYTES",
        help="largest TCP payload, from which the size of an FPDU follows (%(default)s)",
    )
    demo.add_argument(
        "--nic",
        dest="loss",
        type=parse_loss,
        metavar="LOSS",
        help="with a network of their own, joined by a wire that loses so much of all frames: 0 to "
        "0.2 (docs/network.md); leaves demo-nic.pcapng",
    )
    demo.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_startup(demo, timeout=_STARTUP_SECONDS)
    add_device(demo, "that of the source; the sink is simulated")
    demo.set_defaults(check=_check, run=_run)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    check_startup(parser, options)
    if options.file is not None and options.size is not None:
        parser.error("--size is for generated data; allowed: FILE or --size")
    if options.loss is not None and (options.waves or not options.device.is_simulated):
        parser.error("--nic has devices of its own; allowed: --nic, --waves or --device")
    if options.waves and not options.device.is_simulated:
        parser.error("--waves is for the simulated device; allowed: --waves or --device")


def _run(options: argparse.Namespace) -> int:
    from stagecoach.cli.demo import command

    return command.demo(
        options.file,
        options.size,
        options.emss,
        startup_options(options),
        options.waves,
        options.json,
        options.device,
        options.output,
        options.loss,
    )
