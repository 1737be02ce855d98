"""Measures figures and curves, each by its key."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches

from bench import nfs, speed, tcp
from bench.catalogue import FIGURES, RATIOS, STEADY_MESSAGES, Case
from bench.curves import FAMILIES
from bench.run import run_case, running_ahead
from stagecoach.host_driver.errors import StagecoachError
from stagecoach.sim.cosim.runner import CocotbFailure

FAILURES = (CocotbFailure, StagecoachError, RuntimeError, OSError)
"""What a figure may fail with, a build that fails among them; the others are measured then."""

KEYS = (*FIGURES, *RATIOS, *nfs.KEYS, *tcp.KEYS, *speed.KEYS)


def select(names: Sequence[str]) -> list[str]:
    """The keys to be measured, in the order of the table; all without a name.

    `ValueError` names one that there is not.
    """
    for name in names:
        if name not in KEYS:
            alike = ", ".join(get_close_matches(name, KEYS, cutoff=0))
            raise ValueError(f"no figure {name!r}; the nearest of {len(KEYS)}: {alike}")
    return [key for key in KEYS if not names or key in names]


def with_ratios(keys: Sequence[str]) -> list[str]:
    """The keys, and those of the ratios that they are part of, in the order of the table."""
    found = {*keys, *(key for key, parts in RATIOS.items() if {*keys} & {*parts})}
    if found & {*speed.KEYS}:
        found |= {*speed.KEYS}
    return [key for key in KEYS if key in found]


def measure(
    keys: Sequence[str],
    begin: Callable[[str], None],
    save: Callable[[dict[str, float]], None],
    shape: Callable[[Case], Case] | None = None,
    jobs: int = 1,
) -> tuple[dict[str, float], dict[str, str]]:
    """Figures by key, and why some could not be measured.

    `begin` is called with its key before each one, `save` with the figures so far after it; `shape`
    gives the case that is run for one of the catalogue. Without it a figure of less than
    `STEADY_MESSAGES` is not taken. `jobs`: cases that run at once; what is measured in seconds runs
    alone.
    """
    figures: dict[str, float] = {}
    failed: dict[str, str] = {}
    in_cycles = [key for key in keys if key in FIGURES or key in RATIOS]
    needed = [one for key in in_cycles for one in RATIOS.get(key, (key,))]
    with running_ahead([_case(key, shape) for key in needed], jobs):
        _measure(in_cycles, begin, save, shape, figures, failed)
    _measure([key for key in keys if key not in in_cycles], begin, save, shape, figures, failed)
    return {key: figures[key] for key in keys if key in figures}, failed


def _measure(
    keys: Sequence[str],
    begin: Callable[[str], None],
    save: Callable[[dict[str, float]], None],
    shape: Callable[[Case], Case] | None,
    figures: dict[str, float],
    failed: dict[str, str],
) -> None:
    for key in keys:
        begin(key)
        try:
            if key in FIGURES:
                figures[key] = _case_figure(key, shape)
            elif key in RATIOS:
                over, under = RATIOS[key]
                figures[key] = round(_case_figure(over, shape) / _case_figure(under, shape), 3)
            elif key in nfs.KEYS:
                if key not in figures:
                    figures |= nfs.measure(key)
            elif key in tcp.KEYS:
                if key not in figures:
                    figures |= tcp.measure(key)
            elif key not in figures:
                figures |= _speed_figures(key, figures)
                if key not in figures:
                    failed[key] = "not measured: there is no iverilog"
        except FAILURES as error:
            failed[key] = str(error)
        save(figures)


def _case(key: str, shape: Callable[[Case], Case] | None) -> Case:
    case = FIGURES[key].case
    return shape(case) if shape else case


def _case_figure(key: str, shape: Callable[[Case], Case] | None) -> float:
    result = run_case(_case(key, shape))
    if shape is None and result["messages"] < STEADY_MESSAGES:
        count = f"{result['messages']} messages in steady state"
        raise RuntimeError(f"{count}; allowed: {STEADY_MESSAGES} or more")
    return FIGURES[key].value(result)


def _speed_figures(key: str, known: dict[str, float]) -> dict[str, float]:
    """Figures of the simulator that `key` is of; of two and their ratio, if that is asked for."""
    if key in speed.COMPILED_KEYS or key == speed.IDLE_KEY:
        return speed.measure_compiled()
    if key in speed.ICARUS_KEYS:
        return speed.measure_icarus()
    if key in speed.AMARANTH_KEYS:
        return speed.measure_amaranth()
    over = speed.COMPILED_KEYS[0]
    under = (speed.AMARANTH_KEYS if key == speed.AMARANTH_RATIO_KEY else speed.ICARUS_KEYS)[0]
    figures = dict(known)
    for each in (over, under):
        if each not in figures:
            figures |= _speed_figures(each, figures)
    if under in figures:
        figures[key] = round(figures[over] / figures[under], 1)
    return figures


def measure_curves(
    begin: Callable[[str], None], jobs: int = 1
) -> dict[str, dict[str, dict[str, int]]]:
    """The results of all points of all curves, by key and x; `jobs` cases at once."""
    results: dict[str, dict[str, dict[str, int]]] = {}
    curves = [(family, curve) for family in FAMILIES for curve in family.curves]
    with running_ahead([point.case for _, curve in curves for point in curve.points], jobs):
        for family, curve in curves:
            found = results.setdefault(curve.key, {})
            for point in curve.points:
                begin(f"{curve.label}: {family.x}: {point.x:,}")
                found[str(point.x)] = dict(run_case(point.case))
    return results
