"""Writes docs/performance.md and its plots from what was measured."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench import speed
from bench.catalogue import FPDUS_AHEAD, FPDUS_PER_MESSAGE, LATENCY_MESSAGES
from bench.curves import EMSS, FAMILIES, QPS, Curve, port_limit
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
from bench.required import REQUIRED
from stagecoach.cli.perf.sizes import size_text
from stagecoach.gateware.config import WORD_WIDTH, RnicConfig

DOORBELL_LAST = "latency_doorbell_to_last_fpdu_octet_cycles"

DOCUMENT = Path("docs/performance.md")
NEAR = 0.95
"""A curve is at its limit as long as it has this part of it."""

LIKE = 0.9
"""Numbers of QPs need no reason if the least figure has this part of the largest."""

_SENT = (
    "below that, the work for each message is the limit: a send entry from host memory, a visit of "
    "the transmitter"
)
SIZE_REASONS = {
    "write_tx": _SENT,
    "write_rx": "below that, the receiver's work for each FPDU is the limit",
    "read_tx": "below that, a visit of the transmitter for each answer is the limit",
    "read_rx": f"{_SENT}; no more than {{reads}} Reads of a QP are outstanding",
    "send_tx": _SENT,
    "send_rx": "below that, the work for each message is the limit: a receive entry from host "
    "memory, a completion entry to it",
}
QP_REASONS = {
    "write_64_tx": "{lanes} QPs at a time have many send entries on chip, each other QP has two "
    "units of 64 bytes",
    "write_64_rx": "{ahead} FPDUs are ready in total, and the MPA receiver takes those of a QP in "
    "one visit to its connection: the more QPs, the fewer FPDUs in a visit",
    "send_8_rx": "as above. {lanes} QPs at a time have many receive entries on chip, each other "
    "QP has two; so the third Send in a visit waits for its entry, and all that follow it wait "
    "too. With 16 QPs four Sends arrive in a visit, with 64 one",
    "read_8_tx": "{reads} Reads of a QP may be outstanding, and each reads host memory once; more "
    "QPs keep the transmitter busy",
}
LATENCY_REASONS = {
    "write_long_tx": "{window} bytes of payload are read ahead, enough for 8 bytes per cycle up to "
    "{window_cycles} cycles of latency",
    "write_4096_tx": "as above",
    "read_long_tx": "as above; the requests have arrived already, so no entry has to be read",
    "read_4096_tx": "as above",
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
        "Written by `make bench`; change `bench/performance.py`, not this page. It measures one",
        "device in its default configuration, simulated cycle by cycle. Host memory answers reads",
        "after 250 cycles and writes after 50, at full bandwidth; the LLP is always ready. 8 bytes",
        f"per cycle at 156.25 MHz are 10 Gb/s. Unless a figure says otherwise, EMSS is {EMSS} and",
        "there are no Markers.",
        "",
        "## What is required",
        "",
        "| figure | measured | required | limit | |",
        "|---|---:|---:|---:|---|",
    )
    for key, requirement in REQUIRED.items():
        if key in figures:
            verdict = "met" if requirement.met(figures[key]) else "missed"
            yield (
                f"| `{key}` | {figures[key]:,} | {requirement} | {requirement.limit_text} "
                f"| {verdict} |"
            )
    yield from (
        "",
        "Figures of the device are in cycles and the same on every machine. They are taken over at",
        "least 1,000 messages in steady state; those of `nfs` are taken over a few operations and",
        "include software, so they vary by a few thousandths. Where a figure names an EMSS,",
        "a message has only full FPDUs, "
        + " or ".join(f"{count} at {emss}" for emss, count in FPDUS_PER_MESSAGE.items())
        + "; in `read_tx` it has 4,096 bytes.",
        "A message takes some cycles of the transmitter besides those of its FPDUs; they show if",
        f"it has only one FPDU. Latencies are the longest of {LATENCY_MESSAGES:,}.",
        "",
        "The limit is what the LLP port carries: 8 bytes per cycle, and each FPDU begins in a new",
        "beat (`bench/limits.py`). A full FPDU of 1460 bytes takes 183 beats for 1440 of payload,",
        "7.869 bytes per cycle.",
    )
    if DOORBELL_LAST in figures:
        yield from (
            "Between the doorbell and the first byte there is one read of host memory, that of the",
            "send entry: the header leaves before its payload is read. The last of 64 bytes of",
            f"payload leaves after {figures[DOORBELL_LAST]:g} cycles.",
        )
    if all(key in figures for key in speed.KEYS):
        yield from _simulators(figures)
    sizes, qps, latencies = FAMILIES
    yield from ("", "## Size of a message", "", _image("message_size", "size of a message"), "")
    yield from (
        "Dashed: the payload in 8 bytes per cycle at the LLP port, without the overhead of FPDUs.",
        "Dotted: the same on 10 Gb/s Ethernet, with each FPDU in a TCP segment of its own.",
        "",
    )
    for curve in sizes.curves:
        yield _size_sentence(curve, results)
    yield from ("", "## Number of QPs", "", _image("qps", "number of QPs"), "")
    for curve in qps.curves:
        yield _qps_sentence(curve, results)
    yield from ("", "## Read latency", "", _image("read_latency", "read latency"), "")
    for curve in latencies.curves:
        yield _latency_sentence(curve, results)
    if area:
        yield from _area(area)


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
        "These figures depend on the machine. The first row is a program with two compiled",
        "devices, of which one sends RDMA Writes to the other: the cycles of both, per second of",
        "one core. The other rows simulate one device that sends.",
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
        f"- Fmax is {min(clocks):g} to {max(clocks):g} MHz; seeds of one device differ by 15 %\n"
        "  ([timing](timing.md))."
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
    smallest = f"{cycles_per_message(curve, results)[0]:.1f} cycles for a message without payload"
    if least is None:
        where = "is nowhere within 5 % of the port's limit"
    elif least <= curve.points[1].x:
        return f"- {curve.label}: within 5 % of the port's limit at every size; {smallest}."
    else:
        size = size_text(least) + (" bytes" if least < 1024 else "")
        where = f"is within 5 % of the port's limit for messages of {size} and more"
    return f"- {curve.label}: {where}; {_fill(SIZE_REASONS[curve.key])}; {smallest}."


def _qps_sentence(curve: Curve, results: Results) -> str:
    values = cycles_per_message(curve, results)
    text = ", ".join(f"{value:.1f}" for value in values)
    counts = ", ".join(str(count) for count in QPS)
    if min(values) >= LIKE * max(values):
        return f"- {curve.label}: {text} cycles with {counts} QPs, which is within 10 %."
    return f"- {curve.label}: {text} cycles with {counts} QPs: {_fill(QP_REASONS[curve.key])}."


def _latency_sentence(curve: Curve, results: Results) -> str:
    limit = port_limit(curve.points[0].case.options["octets"])
    values = octets_per_cycle(curve, results)
    within = [
        point.x for point, value in zip(curve.points, values, strict=True) if value >= NEAR * limit
    ]
    if len(within) == len(curve.points):
        return f"- {curve.label}: within 5 % of the port's limit at every latency."
    where = f"up to {max(within)} cycles" if within else "at no latency"
    return (
        f"- {curve.label}: within 5 % of the port's limit {where}: "
        f"{_fill(LATENCY_REASONS[curve.key])}; {values[-1]:.2f} bytes per cycle at "
        f"{curve.points[-1].x} cycles."
    )


def _fill(reason: str) -> str:
    """A reason with the sizes of the default device."""
    config = RnicConfig()
    return reason.format(
        lanes=config.prefetch_lanes,
        reads=config.read_queue_depth,
        ahead=FPDUS_AHEAD,
        window=f"{config.payload_buffer_octets:,}",
        window_cycles=config.payload_buffer_octets * 8 // WORD_WIDTH,
    )
