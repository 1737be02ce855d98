"""The `stagecoach` command."""

import argparse
import dataclasses
import importlib.metadata
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from stagecoach.cli.nfs.options import add_nfs, check_nfs, run_nfs
from stagecoach.cli.options import DEFAULT_EMSS, add_device, number, parse_emss, parse_size
from stagecoach.cli.perf.options import add_perf, check_perf, run_perf
from stagecoach.cli.top.options import add_top, check_top, run_top
from stagecoach.cli.wire.options import add_wire, check_wire, run_wire
from stagecoach.host_driver.extras import extra_named
from stagecoach.host_driver.hostlink.serial_device import DEFAULT_BAUD
from stagecoach.host_driver.locate import MAXIMUM_BAUD, device_option
from stagecoach.hw.cache import DEFAULT_LIMIT_MIB, FOLDER_VARIABLE, LIMIT_VARIABLE, CacheError
from stagecoach.hw.verilog import (
    FOLDER,
    MODULE,
    OptionError,
    parse_prefix,
    parse_sizes,
    write_verilog,
)
from stagecoach.ulp.rping.ends import DEFAULT_PORT, DEFAULT_SIZE, Settings
from stagecoach.ulp.rping.messages import MAXIMUM_SIZE, MINIMUM_SIZE

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Tells of bad input in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {message}\n")


def _parse_file(text: str) -> Path:
    try:
        # Without O_NONBLOCK the opening of a FIFO waits for a writer.
        with open(os.open(text, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if stat.S_ISDIR(status.st_mode):
                why = "Is a directory"
            elif not stat.S_ISREG(status.st_mode):
                why = "not a regular file"
            elif status.st_size == 0 and file.read(1):
                why = "it has content but no size"  # as files in /proc
            else:
                return Path(text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
    raise argparse.ArgumentTypeError(f"cannot read {text}: {why}; allowed: a regular file")


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="stagecoach", description="An open iWARP RNIC, in simulation or on a board."
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"stagecoach {importlib.metadata.version('stagecoach')}",
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = subparsers.add_parser(
        "demo",
        help="move a file between two simulated devices",
        description="Moves a file between two simulated devices in two processes, joined by a TCP "
        "connection: RDMA Writes there, RDMA Reads back, Sends with its SHA-256. Leaves "
        "the capture demo.pcapng.",
    )
    demo.add_argument("file", nargs="?", type=_parse_file, metavar="FILE", help="what to move")
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
        metavar="OCTETS",
        help="largest TCP payload, from which the size of an FPDU follows (%(default)s)",
    )
    demo.add_argument("--markers", action="store_true", help="with Markers in both directions")
    demo.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_device(demo, "that of the source; the sink is simulated")

    info = subparsers.add_parser(
        "info",
        help="show a device",
        description="Opens a device and shows its sizes, versions and capabilities.",
    )
    info.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_device(info)

    devices = subparsers.add_parser(
        "devices",
        help="list simulated and serial devices",
        description="Lists the simulated device and those at serial ports, with configuration and "
        "capabilities. Ports of the bridges that boards have are asked, and their boards are "
        "reset by that; others only if they are named.",
    )
    devices.add_argument(
        "--device",
        type=device_option,
        action="append",
        default=[],
        metavar="DEVICE",
        help=f"ask this one, too: serial:///dev/ttyUSB0?baud={DEFAULT_BAUD}",
    )
    devices.add_argument(
        "--baud",
        type=number("baud", 1, MAXIMUM_BAUD),
        default=DEFAULT_BAUD,
        help="of the boards that are not named (%(default)s)",
    )
    devices.add_argument("--json", action="store_true", help="print JSON instead of a table")

    add_top(subparsers)
    _add_rping(subparsers)
    add_perf(subparsers)
    add_nfs(subparsers)
    add_wire(subparsers)

    _add_verilog(subparsers)
    _add_cache(subparsers)

    decode = subparsers.add_parser(
        "decode",
        help="show the FPDUs of a packet capture",
        description="Shows every MPA startup frame and every FPDU of a pcap or pcapng file in one "
        "line of words: connection, message, where it goes, length, CRC, and what is wrong by "
        "which section of which RFC.",
    )
    decode.add_argument("file", type=_parse_file, metavar="FILE", help="the capture")
    decode.add_argument("--json", action="store_true", help="print one JSON object per line")
    decode.add_argument(
        "--pager",
        action=argparse.BooleanOptionalAction,
        help="use the pager of STAGECOACH_PAGER or PAGER, else less (if the output is a terminal)",
    )
    return parser


def _add_verilog(subparsers: Any) -> None:
    verilog = subparsers.add_parser(
        "verilog",
        help="write the device as one Verilog file",
        description="Writes the whole device, for designs of others, to one Verilog file, with a "
        "core file for FuseSoC beside it. Sizes are those of RnicConfig; those that are not named "
        "have their defaults.",
    )
    verilog.add_argument("sizes", nargs="*", metavar="SIZE=NUMBER", help="such as QPS=8 STAGS=64")
    verilog.add_argument(
        "--prefix",
        default="",
        help="of the names of all modules, so that several devices fit into one design",
    )
    verilog.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help=f"{FOLDER}/<prefix>{MODULE}.v, if it is not named",
    )


def _add_cache(subparsers: Any) -> None:
    cache = subparsers.add_parser(
        "cache",
        help="show or clear what was built",
        description="Shows how much of what was built is kept, where, and when it was used last; "
        f"`clear` removes it. {FOLDER_VARIABLE} of the environment names another folder, "
        f"{LIMIT_VARIABLE} how many MiB it may have ({DEFAULT_LIMIT_MIB}).",
    )
    cache.add_argument("action", nargs="?", choices=("show", "clear"), default="show")
    cache.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _add_rping(subparsers: Any) -> None:
    rping = subparsers.add_parser(
        "rping",
        help="RDMA ping-pong, with rping on any iWARP machine too",
        description="Does what rping of rdmacm-utils does, with a simulated device: the server "
        "reads every ping of the client by RDMA Read and writes it back by RDMA Write. The other "
        "side is another `stagecoach rping`, or rping on any iWARP machine.",
    )
    side = rping.add_mutually_exclusive_group(required=True)
    side.add_argument("-s", dest="server", action="store_true", help="be the server")
    side.add_argument("-c", dest="server", action="store_false", help="be the client")
    rping.add_argument(
        "-a",
        dest="address",
        default="",
        metavar="ADDRESS",
        help="of the server; there it says where to listen (at all addresses)",
    )
    rping.add_argument(
        "-p",
        dest="port",
        type=number("port", 0, 65535),
        default=DEFAULT_PORT,
        help="of the server (%(default)s); 0 lets the server choose, and -d tells which",
    )
    rping.add_argument(
        "-C",
        dest="count",
        type=number("count", 0, (1 << 31) - 1),
        default=0,
        metavar="COUNT",
        help="pings of the client; 0 for ever (%(default)s)",
    )
    rping.add_argument(
        "-S",
        dest="size",
        type=number("size", MINIMUM_SIZE, MAXIMUM_SIZE),
        default=DEFAULT_SIZE,
        metavar="SIZE",
        help="octets of a ping (%(default)s); the server takes shorter ones too",
    )
    rping.add_argument("-v", dest="verbose", action="store_true", help="print the ping data")
    rping.add_argument(
        "-V", dest="validate", action="store_true", help="the client compares what comes back"
    )
    rping.add_argument("-d", dest="debug", action="store_true", help="tell of every connection")
    rping.add_argument(
        "-P", dest="persistent", action="store_true", help="the server serves client after client"
    )
    add_device(rping)


def _rping(options: argparse.Namespace) -> int:
    from stagecoach.cli import commands

    given = vars(options)
    names = [field.name for field in dataclasses.fields(Settings)]
    return commands.rping(
        options.server, Settings(**{name: given[name] for name in names}), options.device
    )


def _drop_output() -> None:
    """Has the interpreter not fail at its end on what could not be printed."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _follows_interrupt(error: BaseException) -> bool:
    """Whether it came while what was interrupted was closed."""
    before = error.__context__
    return before is not None and (
        isinstance(before, KeyboardInterrupt) or _follows_interrupt(before)
    )


def _interrupted(command: str) -> int:
    print(f"stagecoach {command}: interrupted", file=sys.stderr)
    return EXIT_INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    """Does what a command line says; returns the exit status.

    What only one command needs is imported here: it may be of an extra that is not installed.
    """
    match options.command:
        case "demo":
            from stagecoach.cli import commands

            return commands.demo(
                options.file,
                options.size,
                options.emss,
                options.markers,
                options.waves,
                options.json,
                options.device,
                options.output,
            )
        case "rping":
            return _rping(options)
        case "perf":
            return run_perf(options)
        case "nfs":
            return run_nfs(options)
        case "top":
            return run_top(options)
        case "wire":
            return run_wire(options)
        case "decode":
            from stagecoach.cli.decode import decode

            return decode(options.file, options.json, options.pager)
        case "devices":
            from stagecoach.cli.devices import show_devices

            return show_devices(options.device, options.baud, options.json)
        case "verilog":
            return write_verilog(options.config, options.prefix, options.output)
        case "cache":
            from stagecoach.cli.cache import clear_cache, show_cache

            return clear_cache() if options.action == "clear" else show_cache(options.json)
        case _:
            from stagecoach.cli import commands

            return commands.info(options.json, options.device)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    from stagecoach.host_driver.errors import StagecoachError
    from stagecoach.sim.build import BuildError
    from stagecoach.sim.capture.file import CaptureError

    parser = _build_parser()
    options = parser.parse_args(arguments)
    if options.command == "verilog":
        try:
            options.config = parse_sizes(options.sizes)
            parse_prefix(options.prefix)
        except OptionError as error:
            parser.error(f"verilog: {error}")
    if options.command == "demo" and options.file is not None and options.size is not None:
        parser.error("--size is for generated data; allowed: FILE or --size")
    if options.command == "demo" and options.waves and not options.device.is_simulated:
        parser.error("--waves is for the simulated device; allowed: --waves or --device")
    if options.command == "rping" and not options.server and not options.address:
        parser.error("-c without -a; allowed: -c with -a and the address of the server")
    if options.command == "perf":
        check_perf(parser, options)
    if options.command == "top":
        check_top(parser, options)
    if options.command == "nfs":
        check_nfs(parser, options)
    if options.command == "wire":
        check_wire(parser, options)
    try:
        with extra_named():
            status = _run(options)
        sys.stdout.flush()  # a full disk shall be told here, not at the interpreter's end
        return status
    except BrokenPipeError:
        _drop_output()  # nobody reads what is printed, e.g. `decode | head`
        return 0 if options.command == "decode" else EXIT_FAILED
    except Exception as error:
        if _follows_interrupt(error):
            return _interrupted(options.command)
        told = StagecoachError | OSError | BuildError | CacheError | CaptureError
        if not isinstance(error, told):
            raise
        if isinstance(error, OSError) and error.errno is not None:
            _drop_output()
        first, *rest = str(error).splitlines() or [""]
        print(f"stagecoach {options.command}: {type(error).__name__}: {first}", file=sys.stderr)
        for line in rest:
            print(line, file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return _interrupted(options.command)


if __name__ == "__main__":
    sys.exit(main())
