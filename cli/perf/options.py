"""The options of `stagecoach perf`."""

import argparse
import math
from pathlib import Path
from typing import Any

from stagecoach.cli.options import (
    DEFAULT_EMSS,
    add_device,
    add_startup,
    check_startup,
    number,
    parse_emss,
    startup_options,
)
from stagecoach.cli.perf.operations import OPERATIONS, Operation
from stagecoach.cli.perf.plot import plot_paths
from stagecoach.cli.perf.settings import (
    DEFAULT_DEPTH,
    DEFAULT_PORT,
    DEFAULT_SIZES,
    LATENCY_MESSAGES,
    MAXIMUM_OUTSTANDING,
    MAXIMUM_QPS,
)
from stagecoach.cli.perf.sizes import parse_sizes, size_text

_CLIENT_ONLY = (
    "sizes",
    "depth",
    "qps",
    "messages",
    "latency_messages",
    "histogram",
    "pingpong",
    "bidirectional",
    "emss",
    "crc",
    "markers",
    "revision",
    "peer_to_peer",
    "clock",
    "plot",
    "json",
)

_DESCRIPTION = """\
Measures {title} between two devices, size by size. With -s it is the server, which
waits for one client; with -c the client; without both, client and server at once. All times are
cycles of the client's device, which runs in step with the server's: what programs and machine
take does not count. With a board as client there is no such step: what programs, link and machine
take does count. Throughput: all messages, from the first doorbell to the interrupt of the
last completion, with up to --depth messages outstanding on each QP; it includes the way of the
first and the last message. Latency: one message outstanding, from the doorbell of its post to the
interrupt of its completion; of --latency-messages such messages ({latencies}). A message is
complete {completes}. Bytes reach the other device 1 to 32 cycles after they were sent."""


def add_perf(subparsers: Any) -> None:
    """Adds the command and its operations."""
    perf = subparsers.add_parser(
        "perf",
        help="measure throughput and latency, with a table and a plot over sizes",
        description="Measures throughput and latency of an operation between two devices, in "
        "cycles, with the limit of the protocol beside them.",
    )
    operations = perf.add_subparsers(dest="operation", required=True, metavar="OPERATION")
    for operation in OPERATIONS.values():
        parser = operations.add_parser(
            operation.name,
            help=operation.title,
            description=_DESCRIPTION.format(
                title=operation.title, completes=operation.completes, latencies=LATENCY_MESSAGES
            ),
        )
        _add_sides(parser)
        _add_measured(parser, operation)
        add_startup(parser)
        add_device(parser, "that of this end; without -s and -c that of the client")
    perf.set_defaults(check=_check, run=_run)


def _add_sides(parser: argparse.ArgumentParser) -> None:
    side = parser.add_mutually_exclusive_group()
    side.add_argument("-s", dest="server", action="store_true", help="be the server")
    side.add_argument("-c", dest="client", action="store_true", help="be the client")
    parser.add_argument(
        "-a",
        dest="address",
        metavar="ADDRESS",
        help="of the server; there it says where to listen (at all addresses)",
    )
    parser.add_argument(
        "-p",
        dest="port",
        type=number("port", 0, 65535),
        metavar="PORT",
        help=f"of the server ({DEFAULT_PORT}); 0 lets the server choose",
    )


def _add_measured(parser: argparse.ArgumentParser, operation: Operation) -> None:
    # Without defaults: the server, which learns all this from the client, takes none of it.
    parser.add_argument(
        "--sizes",
        type=parse_sizes,
        metavar="SIZES",
        help="of messages: a list such as 64,1000,4KiB; first-last for all powers of two "
        "between (1-64KiB)"
        if operation.size is None
        else f"of messages; allowed: {operation.size}, the bytes of each",
    )
    parser.add_argument(
        "--depth",
        type=number("depth", 1, MAXIMUM_OUTSTANDING),
        metavar="MESSAGES",
        help=f"queue depth: messages outstanding on each QP ({DEFAULT_DEPTH}); of RDMA Reads and "
        "atomics as many are under way as the ORD allows (max_qp_rd_atom of `stagecoach info`)",
    )
    parser.add_argument(
        "--qps", type=number("QPs", 1, MAXIMUM_QPS), metavar="QPS", help="Queue Pairs (1)"
    )
    parser.add_argument(
        "--messages",
        type=number("messages", 1, MAXIMUM_OUTSTANDING),
        metavar="MESSAGES",
        help="per size, on all QPs together (512KiB of them, 16 to 1024, at least twice as many as "
        "are outstanding, of which 1MiB counts)",
    )
    parser.add_argument(
        "--latency-messages",
        type=number("latency messages", 1, MAXIMUM_OUTSTANDING),
        metavar="MESSAGES",
        help=f"per size, one at a time, for the latency ({LATENCY_MESSAGES}); the percentile 99.9 "
        "takes 1000 to differ from the longest",
    )
    parser.add_argument(
        "--histogram",
        action="store_true",
        default=None,
        help="print a histogram of the latencies of each size",
    )
    parser.add_argument(
        "--pingpong",
        action="store_true",
        default=None,
        help="of write and send: the server answers each message with one of the same size, and "
        "the latency is half of the round trip, as of perftest's ib_write_lat and ib_send_lat; a "
        "Write is there when its last byte is seen in memory",
    )
    parser.add_argument(
        "--bidirectional",
        action="store_true",
        default=None,
        help="the server sends as many messages at the same time; throughput is that of both",
    )
    parser.add_argument(
        "--emss",
        type=parse_emss,
        metavar="BYTES",
        help="largest TCP payload, from which the size of an FPDU follows (1460)",
    )
    parser.add_argument(
        "--clock",
        type=_parse_clock,
        metavar="MHZ",
        help="of the device: turns cycles into seconds, nothing else (that of a board; else "
        "156.25, which makes 64 bits per cycle 10 Gbit/s)",
    )
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="STEM",
        help="write the plot to STEM.png and STEM.svg (build/perf_OPERATION)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write everything that was measured to FILE"
    )


def _parse_clock(text: str) -> float:
    try:
        mhz = float(text)
    except ValueError:
        mhz = math.nan
    if not 0 < mhz <= 10_000:
        raise argparse.ArgumentTypeError(f"clock is {text}; allowed: above 0 to 10000 MHz")
    return mhz


def _why_not_written(path: Path) -> str | None:
    try:
        if not path.parent.is_dir():
            return f"{path.parent} is not a directory"
        return "it is a directory" if path.is_dir() else None
    except OSError as error:
        return error.strerror


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.server:
        for name in _CLIENT_ONLY:
            if getattr(options, name) is not None:
                option = name.replace("_", "-")
                parser.error(f"--{option} with -s; allowed: at the client, which sends it")
        return
    check_startup(parser, options)
    if options.client and not options.address:
        parser.error("-c without -a; allowed: -c with -a and the address of the server")
    if not options.client and (options.address is not None or options.port is not None):
        parser.error("-a or -p without -s or -c; allowed: with one of them")
    depth, qps = options.depth or DEFAULT_DEPTH, options.qps or 1
    if depth * qps > MAXIMUM_OUTSTANDING:
        parser.error(
            f"{depth} messages on each of {qps} QPs; allowed: {MAXIMUM_OUTSTANDING} together"
        )
    operation = OPERATIONS[options.operation]
    if operation.size is not None and options.sizes not in (None, (operation.size,)):
        sizes = ",".join(map(size_text, options.sizes))
        parser.error(
            f"--sizes is {sizes} with {operation.name}; allowed: {operation.size}, "
            "the bytes of each"
        )
    if options.pingpong and not operation.pingpong:
        allowed = " and ".join(each.name for each in OPERATIONS.values() if each.pingpong)
        parser.error(
            f"--pingpong with {operation.name}; allowed: with {allowed}, where the server "
            "sees a message and can answer it"
        )
    latency_messages = options.latency_messages or LATENCY_MESSAGES
    if operation.takes_receive and latency_messages * qps > MAXIMUM_OUTSTANDING:
        parser.error(
            f"{latency_messages} latency messages with {qps} QPs, each with as many "
            f"receives; allowed: {MAXIMUM_OUTSTANDING} together"
        )
    if options.plot is not None and not options.plot.name:
        parser.error(f"--plot is {options.plot}; allowed: a path that ends with a name")
    files = [] if options.json is None else [options.json]
    if options.plot is not None:
        files += plot_paths(options.plot)
    for path in files:
        if (why := _why_not_written(path)) is not None:
            parser.error(f"cannot write {path}: {why}")


def _run(options: argparse.Namespace) -> int:
    # Only now: the other commands need nothing of this.
    from stagecoach.cli.clock import GOAL_HZ
    from stagecoach.cli.perf import command
    from stagecoach.cli.perf.limit import Framing
    from stagecoach.cli.perf.result import Result
    from stagecoach.cli.perf.settings import Plan

    operation = OPERATIONS[options.operation]
    port = DEFAULT_PORT if options.port is None else options.port
    startup = startup_options(options)
    if options.server:
        command.serve(operation, options.address or "", port, options.device, startup.timeout)
        return 0
    if options.plot is not None:
        import matplotlib  # noqa: F401  # if it is missing, now and not after the measurement
    sizes = DEFAULT_SIZES if operation.size is None else (operation.size,)
    plan = Plan(
        operation,
        options.sizes or sizes,
        options.depth or DEFAULT_DEPTH,
        options.qps or 1,
        Framing(options.emss or DEFAULT_EMSS, startup.markers),
        options.messages,
        options.latency_messages or LATENCY_MESSAGES,
        bool(options.pingpong),
        bool(options.bidirectional),
        startup,
    )
    measured = command.measure_at(plan, options.address or "", port, options.device)
    stem = options.plot or Path("build") / f"perf_{operation.name}"
    clock = options.clock or measured.clock_mhz or GOAL_HZ / 1e6
    result = Result(plan, clock, measured.points, options.device.text)
    command.show(result, stem, options.json, bool(options.histogram))
    return 0
