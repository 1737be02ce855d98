"""Writes docs/performance.md and its plots from what was measured."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench import nic_pair, speed, tcp
from bench.catalogue import DEFAULTS, FPDUS_PER_MESSAGE, LATENCY_MESSAGES
from bench.curves import FAMILIES, Curve
from bench.limits import EMSS, port_limit
from bench.plots import (
    AREA,
    AREA_SIZES,
    AREA_UNITS,
    FIGURES,
    AreaRows,
    AreaSeries,
    Results,
    area_figure,
    cycles_per_message,
    octets_per_cycle,
    write_plots,
)
from bench.prose import paragraph
from bench.qps_page import explain, tables
from bench.required import MANY_QPS, REQUIRED
from stagecoach.cli.perf.sizes import size_text
from stagecoach.gateware.config import WORD_WIDTH, RnicConfig

DOORBELL_LAST = "latency_doorbell_to_last_fpdu_octet_cycles"

DOCUMENT = Path("docs/performance.md")
NEAR = 0.95
"""A curve is at its limit as long as it has this part of it."""

LIKE = 0.9
"""Numbers of QPs need no reason if the least figure has this part of the largest."""

_SENT = "Each message costs a visit of the transmitter, and a send entry is read from host memory."
SIZE_REASONS = {
    "write_tx": _SENT,
    "write_rx": "The receiver works some cycles on each FPDU.",
    "read_tx": "Each answer costs a visit of the transmitter.",
    "read_rx": f"{_SENT} A QP has at most {{reads}} Reads outstanding.",
    "send_tx": _SENT,
    "send_rx": "For each message a receive entry is read from host memory, and a completion "
    "entry is written.",
}
QP_REASONS = {
    "write_64_rx": "The MPA receiver takes all FPDUs of a QP that are at hand in one visit. Each "
    "visit costs one cycle more. With more QPs, a visit has fewer FPDUs.",
    "send_8_rx": "{lanes} QPs at a time have many receive entries on chip. Each other QP has "
    "{receive_units}. If more Sends arrive at it in a row, they wait for their entries, and all "
    "other QPs wait, too.",
    "read_8_responder": "Each answer waits until its payload is read from host memory. A QP may "
    "have {reads} Reads outstanding, so one QP alone does not keep the transmitter busy.",
    "read_8_requester": f"{_SENT} A QP has at most {{reads}} Reads outstanding.",
    "send_8_tx": _SENT,
    "write_64_tx": "{lanes} QPs at a time have many send entries on chip. Each other QP has two "
    "units of 64 bytes.",
}


def write_document(figures: Mapping[str, float], results: Results) -> None:
    """Writes the page and its plots."""
    write_plots(results, FIGURES)
    area = json.loads(AREA.read_text()) if AREA.exists() else {}
    DOCUMENT.write_text(page(figures, results, area))


def page(figures: Mapping[str, float], results: Results, area: AreaSeries) -> str:
    """The text of docs/performance.md; without a part on the area if nothing is known of it."""
    return "\n".join(_lines(figures, results, area)) + "\n"


def _lines(figures: Mapping[str, float], results: Results, area: AreaSeries) -> Iterable[str]:
    yield from (
        "# Performance",
        "",
        "Written by `make bench`. To change this page, change `bench/performance.py`.",
        "",
        *paragraph(
            "All figures are of one device in its default configuration, simulated cycle by cycle.",
            "Host memory answers a read after 250 cycles and a write after 50. It moves 8 bytes",
            "per cycle. The LLP takes at once what is sent, and answers a request after",
            f"{DEFAULTS['llp_latency']} cycles. EMSS is {EMSS}, and there are no Markers. Where a",
            "figure has another value, its name says so. At 156.25 MHz, 8 bytes per cycle are",
            "10 Gb/s.",
        ),
        "",
        "## What is required",
        "",
        "| figure | measured | required | limit | |",
        "|---|---:|---:|---:|---|",
    )
    for key, requirement in REQUIRED.items():
        if key in figures and key not in MANY_QPS:
            yield (
                f"| `{key}` | {figures[key]:,} | {requirement} | {requirement.limit_text} "
                f"| {requirement.verdict(figures[key])} |"
            )
    yield from (
        "",
        "What is required with many QPs is [below](#number-of-qps).",
        "",
        *paragraph(
            "The figures of the device are cycles of its clock, the same on every machine. Each is",
            "the average over at least 1,000 messages, after the device has become busy. The",
            "figures of `nfs` are averages over a few operations. Software takes part in them, so",
            f"they vary by a few thousandths. Latencies are the longest of {LATENCY_MESSAGES:,}.",
        ),
        "",
        *_network(figures),
        *paragraph(
            "If the name of a figure has an EMSS, all FPDUs of a message are full: it has",
            " or ".join(f"{count} at {emss}" for emss, count in FPDUS_PER_MESSAGE.items()) + ".",
            "In `read_tx` a message has 4,096 bytes. A message costs the transmitter some cycles",
            "besides those of its FPDUs. They show if it has only one FPDU.",
        ),
        "",
        *paragraph(
            "The limit is what the LLP port can carry: 8 bytes per cycle, and each FPDU begins in",
            "a new cycle (`bench/limits.py`). A full FPDU of 1460 bytes has 1440 bytes of payload",
            "and takes 183 cycles. That is 7.869 bytes per cycle.",
        ),
    )
    if DOORBELL_LAST in figures:
        yield from (
            "",
            *paragraph(
                "After a doorbell the device reads the send entry from host memory. Then the",
                "header leaves. It does not wait for the payload, which is read meanwhile. The",
                f"last of 64 bytes of payload leaves after {figures[DOORBELL_LAST]:g} cycles.",
            ),
        )
    if all(key in figures for key in speed.KEYS):
        yield from _simulators(figures)
    sizes, qps, latencies = FAMILIES
    yield from ("", "## Size of a message", "", _image("message_size", "size of a message"), "")
    yield from (
        *paragraph(
            "Dashed: what the LLP port carries, without the overhead of FPDUs. Dotted: what 10",
            "Gb/s Ethernet carries, with each FPDU in a TCP segment of its own. Where two curves",
            "are one, the thin one lies on the wide one.",
        ),
        "",
    )
    for curve in sizes.curves:
        yield _size_sentence(curve, results)
    yield from ("", "## Number of QPs", "", _image("qps", "number of QPs"), "", *explain())
    for curve in qps.curves:
        yield _qps_sentence(curve, results)
    yield from ("", *tables(figures))
    yield from ("", "## Read latency", "", _image("read_latency", "read latency"), "")
    for curve in latencies.curves:
        yield _latency_sentence(curve, results)
    window = RnicConfig().payload_buffer_octets
    yield from (
        "",
        f"The device reads {window:,} bytes of payload ahead. At 8 bytes per cycle this hides "
        f"{window * 8 // WORD_WIDTH} cycles of latency.",
    )
    if area:
        yield from _area(area)


def _network(figures: Mapping[str, float]) -> Iterable[str]:
    """Under which conditions the figures of NICs are, if they were measured."""
    if tcp.TX_KEY in figures:
        yield from (
            *paragraph(
                "The figures of `tcp` are of two NICs with the TCP engine in gateware, joined by a",
                "wire of 10 Gb/s that loses nothing; `tx` is at the sender, the others at the",
                f"receiver. One QP has {nic_pair.WRITES} Writes of {tcp.OCTETS:,} bytes, of which",
                f"the first {tcp.UNCOUNTED} do not count; each of 64 QPs {tcp.WRITES_OF_MANY} of",
                f"{tcp.OCTETS_OF_MANY:,}. Jain's index is that of the mean rates of the 64, each",
                f"until its end. Cycles are counted in steps of {tcp.STEP}. Ethernet leaves 7.49",
                "bytes per cycle of frames of 1,500 bytes.",
            ),
            "",
        )


def _simulators(figures: Mapping[str, float]) -> Iterable[str]:
    """How fast the device is simulated, all in one run."""
    yield from (
        "",
        "## Simulation",
        "",
        "| simulator of the whole device | cycles per second | speed-up of the compiled device |",
        "|---|---:|---:|",
    )
    for name, keys, ratio in (
        ("compiled device", speed.COMPILED_KEYS, None),
        ("Icarus", speed.ICARUS_KEYS, speed.RATIO_KEY),
        ("Amaranth's own", speed.AMARANTH_KEYS, speed.AMARANTH_RATIO_KEY),
    ):
        times = "" if ratio is None else f"{figures[ratio]:,g}"
        yield f"| {name} | {figures[keys[0]]:,.0f} | {times} |"
    yield from (
        "",
        *paragraph(
            "These figures depend on the machine. The first row is a program with two compiled",
            "devices. One of them sends RDMA Writes to the other. The cycles of both count, per",
            "second of one core. The other rows simulate one device that sends.",
        ),
        "",
        "When the two compiled devices have no work, their process uses",
        f"{figures[speed.IDLE_KEY]:g} microseconds of one core per second.",
    )


def _area(series: AreaSeries) -> Iterable[str]:
    """What `make scaling` has measured."""
    yield from (
        "",
        "## Area and clock",
        "",
        "Measured by `make scaling` on an LFE5UM5G-85F with one seed; all other sizes are those of",
        "the default configuration.",
    )
    if any("fmax_mhz" not in row for rows in series.values() for row in rows.values()):
        yield "A device without a figure in MHz was not placed."
    for key, rows in series.items():
        size = AREA_SIZES[key]
        yield from (
            "",
            f"![area and Fmax over {size}](figures/performance/{area_figure(key)}.svg)",
            "",
            f"| {size} | " + " | ".join(AREA_UNITS.values()) + " |",
            "|" + "---:|" * (1 + len(AREA_UNITS)),
        )
        for value, row in rows.items():
            cells = (str(row.get(unit, "")) for unit in AREA_UNITS)
            yield f"| {value} | " + " | ".join(cells) + " |"
        yield ""
        yield from AREA_REASONS[key](rows)


def _per_qp(rows: AreaRows) -> Iterable[str]:
    (fewest, low), *_, (most, high) = ((int(count), row) for count, row in rows.items())
    lut4, ff, ram = ((high[key] - low[key]) / (most - fewest) for key in ("lut4", "ff", "dp16kd"))
    yield from (
        f"- Each further QP takes {lut4:.0f} LUT4, {ff:.0f} flip-flops and {ram:.1f} DP16KD: for",
        "  its registers, for the choice among all QPs, and for tables and queues, in block RAM",
        "  and in distributed RAM, where one cell serves 16 QPs.",
    )
    if all("fmax_mhz" in row for row in rows.values()):
        yield _clock(rows)
        yield "  A choice among QPs takes two cycles, however many there are."


def _clock(rows: AreaRows) -> str:
    clocks = [row["fmax_mhz"] for row in rows.values()]
    return (
        f"- Fmax is {min(clocks):g} to {max(clocks):g} MHz, each with one seed. How much\n"
        "  seeds of one device differ is in [timing](timing.md)."
    )


def _per_width(rows: AreaRows) -> Iterable[str]:
    yield from (
        "- The data width is that of the ports to host memory and to the LLP. Inside, the device",
        "  always moves 64 bits per cycle, so 32 bits halve the throughput and 128 do not double",
        "  it ([why](decisions/data-width.md)).",
    )
    own = rows.get(str(WORD_WIDTH))
    for width, row in rows.items():
        if own is not None and row is not own:
            lut4, ff = (row[key] - own[key] for key in ("lut4", "ff"))
            yield from (
                f"- With {width} bits: {lut4:+d} LUT4 and {ff:+d} flip-flops, for the converters",
                "  and for the logic of the harness around the device for each bit of its ports.",
            )
    if all("fmax_mhz" in row for row in rows.values()):
        yield _clock(rows)
        yield "  The longest paths are in [data width](decisions/data-width.md)."


AREA_REASONS = {"by_qps": _per_qp, "by_data_width_bits": _per_width}
"""What is to be said of the rows by a size."""


def _image(name: str, over: str) -> str:
    return f"![throughput over {over}](figures/performance/{name}.svg)"


def _size_sentence(curve: Curve, results: Results) -> str:
    values = octets_per_cycle(curve, results)
    least = None
    for point, value in reversed(list(zip(curve.points, values, strict=True))):
        if point.x and value < NEAR * port_limit(point.x):
            break
        least = point.x
    empty = f"An empty message takes {cycles_per_message(curve, results)[0]:.1f} cycles."
    if least is None:
        where = "more than 5 % below the port's limit at every size"
    elif least <= curve.points[1].x:
        return f"- {curve.label}: within 5 % of the port's limit at every size. {empty}"
    else:
        size = size_text(least) + (" bytes" if least < 1024 else "")
        where = f"within 5 % of the port's limit from {size} on"
    return f"- {curve.label}: {where}. {empty} {_fill(SIZE_REASONS[curve.key])}"


def _qps_sentence(curve: Curve, results: Results) -> str:
    values = cycles_per_message(curve, results)
    least, most = min(values), max(values)
    if least >= LIKE * most:
        return f"- {curve.label}: {least:.1f} to {most:.1f} cycles, which is within 10 %."
    return f"- {curve.label}: {least:.1f} to {most:.1f} cycles. {_fill(QP_REASONS[curve.key])}"


def _latency_sentence(curve: Curve, results: Results) -> str:
    limit = port_limit(curve.points[0].case.options["octets"])
    values = octets_per_cycle(curve, results)
    within = [
        point.x for point, value in zip(curve.points, values, strict=True) if value >= NEAR * limit
    ]
    if len(within) == len(curve.points):
        return f"- {curve.label}: within 5 % of the port's limit at every latency."
    if within:
        where = f"within 5 % of the port's limit up to {max(within):,} cycles"
    else:
        where = "more than 5 % below the port's limit at every latency"
    longest = curve.points[-1].x
    return (
        f"- {curve.label}: {where}. At {longest:,} cycles it has {values[-1]:.2f} bytes per cycle."
    )


def _fill(reason: str) -> str:
    """A reason with the sizes of the default device."""
    config = RnicConfig()
    return reason.format(
        lanes=config.prefetch_lanes,
        reads=config.read_queue_depth,
        receive_units=config.receive_units,
    )
