"""The tables of docs/performance.md over the number of QPs."""

from collections.abc import Iterable, Mapping

from bench import many_qps
from bench.catalogue import FPDUS_AHEAD, LARGE_WRITES
from bench.many_qps import CONDITIONS, NOT_SLOW, OTHERS, PATTERNS, RUNS, SLOW, Condition
from bench.prose import paragraph
from bench.required import MANY_QPS

Figures = Mapping[str, float]


def explain() -> Iterable[str]:
    """What is measured, and what the plot shows."""
    yield from (
        *paragraph(
            "The QPs take turns, and each message has one FPDU. The LLP has some FPDUs at hand:",
            f"{FPDUS_AHEAD} in total if several QPs receive, and at least one for each QP. The",
            "next one arrives when the device has released one. The figures for 256 QPs are of a",
            "device with 256 QPs.",
        ),
        "",
        *paragraph(
            "Dotted in the plot, and *wire* in the tables: what 10 Gb/s Ethernet takes, with each",
            "FPDU in a TCP segment of its own. The request of a Read takes longer than its answer.",
        ),
        "",
        *paragraph(
            "What the device only sends asks the LLP for nothing. So the tables for latencies of",
            "the LLP leave it out.",
        ),
        "",
    )


def tables(figures: Figures) -> Iterable[str]:
    """The tables; none without figures."""
    known = [key for key in MANY_QPS if key in figures]
    if not known:
        return
    met = sum(MANY_QPS[key].met(figures[key]) for key in known)
    yield f"{met} of the {len(known)} figures in these tables meet what is required."
    for condition in CONDITIONS:
        yield from _condition(figures, condition)
    if RUNS.keys() & figures.keys():
        yield from _runs(figures)
    if all(many_qps.slow_ratio_key(name, kind) in figures for kind, name in _slow()):
        yield from _slow_qp(figures)


def _cell(figures: Figures, key: str) -> str:
    """A figure, and whether it is not what is required; empty if it was not measured."""
    if key not in figures:
        return ""
    text, verdict = f"{figures[key]:g}", MANY_QPS[key].verdict(figures[key])
    return text if verdict == "met" else f"{text}, {verdict}"


def _condition(figures: Figures, condition: Condition) -> Iterable[str]:
    rows = []
    for pattern in PATTERNS:
        keys = [many_qps.figure_key(pattern, qps, condition) for qps in condition.qps]
        if condition.applies(pattern) and any(key in figures for key in keys):
            required = MANY_QPS[keys[0]]
            cells = " | ".join(_cell(figures, key) for key in keys)
            rows.append(
                f"| {pattern.label} | {cells} | {required.value:g} | {required.wire_text} |"
            )
    if not rows:
        return
    counts = " | ".join(f"{qps} QPs" if qps > 1 else "1 QP" for qps in condition.qps)
    yield from (
        "",
        f"### Cycles per message, {condition.label}",
        "",
        f"| message | {counts} | at most | wire |",
        "|---|" + "---:|" * (len(condition.qps) + 2),
        *rows,
    )
    large = [f"{key}{condition.suffix}" for key in LARGE_WRITES]
    if condition.suffix and all(key in figures for key in large):
        one, many = (_cell(figures, key) for key in large)
        yield from (
            "",
            *paragraph(
                f"Large RDMA Writes then arrive at {one} bytes of payload per cycle with one QP,",
                f"and at {many} with 64. Required are {MANY_QPS[large[0]].value:g}.",
            ),
        )


def _runs(figures: Figures) -> Iterable[str]:
    yield from (
        "",
        "### Several Sends in a row",
        "",
        *paragraph(
            f"Each of {many_qps.RUN_QPS} QPs gets {many_qps.RUN} Sends of 8 bytes in a row. The",
            "order of the QPs is random.",
        ),
        "",
        "| entries from | cycles per message | at most | wire |",
        "|---|---:|---:|---:|",
    )
    for key, name in RUNS.items():
        required = MANY_QPS[key]
        yield f"| {name} | {_cell(figures, key)} | {required.value:g} | {required.wire_text} |"


def _slow() -> list[tuple[str, str]]:
    return [(kind, name) for kind, (_, patterns) in SLOW.items() for name in patterns]


def _slow_qp(figures: Figures) -> Iterable[str]:
    labels = {pattern.key: pattern.label for pattern in PATTERNS}
    least = MANY_QPS[many_qps.slow_ratio_key(*reversed(_slow()[0]))].value
    yield from (
        "",
        "### One slow QP",
        "",
        *paragraph(
            f"{OTHERS} QPs take turns. Beside them, one more QP is idle, or it is slow. The table",
            "has the cycles of a message of the others, and the ratio of the two. Required is a",
            f"ratio of at most {least:g}.",
        ),
        "",
        "| the slow QP | messages of the others | beside an idle QP | beside a slow QP | ratio |",
        "|---|---|---:|---:|---:|",
    )
    for kind, name in _slow():
        idle, beside = (
            f"{figures.get(many_qps.slow_key(name, each), float('nan')):g}"
            for each in (NOT_SLOW, kind)
        )
        ratio = _cell(figures, many_qps.slow_ratio_key(name, kind))
        yield f"| {SLOW[kind][0]} | {labels[name]} | {idle} | {beside} | {ratio} |"
    yield from (
        "",
        "Host memory answers reads in order. So a read that is late holds up the reads after it",
        "([integration](integration.md)).",
    )
