"""Builds the compiled device: Amaranth to Verilog to C++ to a shared library, cached by content.

The cache is that of `hw/cache.py`.
"""

import concurrent.futures
import functools
import hashlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stagecoach.gateware.config import WORD_WIDTH, RnicConfig
from stagecoach.hw import cache
from stagecoach.hw.cached_verilog import (
    NIC_TOP,
    TOP,
    Progress,
    export_nic_verilog,
    export_verilog,
    tell,
    tell_waiting,
)
from stagecoach.sim.harness import NIC_HARNESS, RNIC_HARNESS, Harness
from stagecoach.sim.resting import split_clocks
from stagecoach.sim.runtime_header import HEADER, runtime_header
from stagecoach.sim.verilator import (
    BuildError,
    compiled_by,
    require,
    verilator_environment,
    verilator_root,
    verilator_version,
)

RUNTIME = Path(__file__).resolve().parent / "runtime"
LIBRARY = "librnic.so"

VERILATOR_ARGUMENTS = (
    "--cc",
    "--prefix",
    "Vrnic",
    "--top-module",
    "harness",
    "-O3",
    # What is undefined is unlikely to look right.
    "--x-assign",
    "1",
    "--x-initial",
    "fast",
    "--no-assert",
    "--no-timing",
    "--threads",
    "1",
    # Large enough for inlining, small enough for two compilers at a time.
    "--output-split",
    "20000",
    "-Wno-fatal",
    "-Wno-lint",
    "-Wno-style",
)
COMPILER_ARGUMENTS = (
    "-std=c++20",
    "-fPIC",
    "-fvisibility=hidden",
    # Two variants of the library in one process must not share their static variables.
    "-fno-gnu-unique",
    "-fno-strict-aliasing",
    "-fcf-protection=none",
    "-DVL_USER_FINISH",
    "-DVL_USER_STOP",
    "-DVL_USER_FATAL",
    "-DVM_COVERAGE=0",
    "-DVM_SC=0",
    "-DVM_TIMING=0",
    "-DVM_TRACE_VCD=0",
    "-DVM_TRACE_SAIF=0",
    "-w",
)

FAST = "-O3"
# Constructors and first settling: run once, and long to optimise.
SLOW = "-O0"


@dataclass(frozen=True)
class Parts:
    """What a compiled model is made of beside the Verilog, and what comes out.

    harness: Verilog of its surroundings. runtime: folders of C++ files.
    output: file in the build's folder, a shared library if its name ends in `.so`, else a program.
    level: how much the compiler optimises what runs in every cycle. made: names and texts of
    further files, Verilog or C++ headers.
    """

    harness: tuple[Path, ...]
    runtime: tuple[Path, ...]
    output: str
    level: str = FAST
    made: tuple[tuple[str, str], ...] = ()


def _device_parts(harness: Harness, ports: str) -> Parts:
    """Those of a device whose ports the runtime's folder `ports` serves."""
    made = (
        ("harness.v", harness.verilog),
        ("input_clocks.h", harness.header),
        (HEADER, runtime_header()),
    )
    return Parts((), (RUNTIME, RUNTIME / ports), LIBRARY, made=made)


RNIC_PARTS = _device_parts(RNIC_HARNESS, "rnic")
NIC_PARTS = _device_parts(NIC_HARNESS, "nic")


def build_device(
    config: RnicConfig | None = None,
    trace: bool = False,
    progress: Progress | None = None,
    level: str = FAST,
) -> Path:
    """Return the shared library of `gateware.rnic.Rnic(config)`, built if it is not in the cache.

    Its blocks rest while nothing in them would change, which makes it twice as fast
    (docs/decisions/resting-blocks.md), but not with `trace`: a waveform shows one clock.

    Parameters
    ----------
    config: sizes of the device, `RnicConfig()` if None.
    trace: build the variant that can write FST waveforms (slower; needs the lz4 and zlib headers).
    progress: called with a few words before each step that takes long.
    level: as in `Parts`; a device that is simulated for seconds only is built sooner with `-O1`.
    """
    config = RnicConfig() if config is None else config
    _compiler()  # before the Verilog is exported, which takes a while
    verilog = export_verilog(config, progress)
    verilog, clocks = (verilog, 0) if trace else _split_clocks(verilog, TOP)
    return compile_verilog(
        verilog,
        config.qps,
        data_width=config.data_width,
        clocks=clocks,
        trace=trace,
        progress=progress,
        level=level,
    )


def build_nic(
    config: RnicConfig | None = None,
    mtu: int = 1500,
    trace: bool = False,
    progress: Progress | None = None,
    level: str = FAST,
) -> Path:
    """Return the shared library of `gateware.nic.RnicNic(config, mtu)`, as `build_device` does.

    mtu: bytes of an IP packet at most.
    """
    config = RnicConfig() if config is None else config
    _compiler()
    verilog = export_nic_verilog(config, mtu, progress)
    verilog, clocks = (verilog, 0) if trace else _split_clocks(verilog, NIC_TOP)
    return compile_verilog(
        verilog,
        config.qps,
        parts=NIC_PARTS,
        data_width=config.data_width,
        clocks=clocks,
        trace=trace,
        progress=progress,
        level=level,
    )


@functools.lru_cache(maxsize=4)
def _split_clocks(verilog: str, top: str) -> tuple[str, int]:
    return split_clocks(verilog, top)


def compile_verilog(
    verilog: str,
    connections: int,
    *,
    parts: Parts = RNIC_PARTS,
    data_width: int = WORD_WIDTH,
    clocks: int = 0,
    trace: bool = False,
    progress: Progress | None = None,
    options: Sequence[str] = (),
    level: str = FAST,
) -> Path:
    """Return the shared library of a module `rnic` with the ports of the device.

    `connections` are those of its LLP port. `parts`: with `NIC_PARTS` the module is `nic`.
    `data_width`: of its ports to host memory and LLP; the runtime takes it from the model.
    `clocks`: how many it has if it is from `split_clocks`. `options` are added to those of the C++
    compiler. `level`: as in `Parts`.
    """
    arguments = [
        *VERILATOR_ARGUMENTS,
        f"-GCONNECTION_BITS={(connections - 1).bit_length()}",
        f"-GDATA_WIDTH={data_width}",
    ]
    if clocks:
        arguments.append(f"-DCLOCKS={clocks}")
        options = [*options, f"-DCLOCKS={clocks}"]
    parts = replace(parts, level=level)
    return compile_parts(verilog, parts, arguments, trace=trace, progress=progress, options=options)


def _compiler() -> str:
    """The C++ compiler. Raises `BuildError` if what it takes to build is missing or unusable."""
    require("perl")
    verilator_root()
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise BuildError(
            f"the C++ compiler {compiler!r} is not installed; install g++ (Debian: apt install g++)"
            " or name another one in CXX"
        )
    return compiler


def compile_parts(
    verilog: str,
    parts: Parts,
    arguments: Sequence[str],
    *,
    trace: bool = False,
    progress: Progress | None = None,
    options: Sequence[str] = (),
) -> Path:
    """Return what Verilator makes of Verilog and `parts`, from the cache or new."""
    compiler = _compiler()
    version = compiled_by(compiler)
    arguments = [*arguments, *(["--trace-fst"] if trace else [])]
    flags = [*COMPILER_ARGUMENTS, *options]
    digest = hashlib.sha256()
    for part in (
        verilog,
        verilator_version(),
        version,
        *arguments,
        *flags,
        parts.level,
        SLOW,
        *itertools.chain.from_iterable(parts.made),
    ):
        digest.update(hashlib.sha256(part.encode()).digest())
    for folder in parts.runtime:
        for path in sorted(folder.iterdir()):
            if path.suffix in (".cpp", ".h"):
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    for path in parts.harness:
        digest.update(hashlib.sha256(path.read_bytes()).digest())

    def make(folder: Path) -> None:
        command = [compiler, *flags]
        _build(folder, parts, verilog, arguments, command, version, trace, progress)

    key = digest.hexdigest()[:20]
    return cache.kept("device", key, parts.output, make, tell_waiting(progress))


def _build(
    folder: Path,
    parts: Parts,
    verilog: str,
    arguments: list[str],
    compiler: list[str],
    version: str,
    trace: bool,
    progress: Progress | None,
) -> None:
    source = folder / "device.v"
    source.write_text(verilog)
    model = folder / "model"
    model.mkdir(exist_ok=True)
    for name, text in parts.made:
        (model / name).write_text(text)
    harness = [*parts.harness, *(model / name for name, _ in parts.made if name.endswith(".v"))]
    tell(progress, "translate Verilog to C++")
    _run(["verilator", *arguments, "--Mdir", str(model), *map(str, harness), str(source)])

    include = verilator_root() / "include"
    names = ["verilated.cpp", "verilated_threads.cpp"]
    if trace:
        names.append("verilated_fst_c.cpp")
        compiler = [*compiler, "-DSTAGECOACH_TRACE", "-DVM_TRACE=1", "-DVM_TRACE_FST=1"]
    else:
        compiler = [*compiler, "-DVM_TRACE=0", "-DVM_TRACE_FST=0"]
    compiler_flags = " ".join(compiler)
    compiler += [
        f"-I{model}",
        f"-I{include}",
        f"-I{include / 'vltstd'}",
        *(f"-I{path}" for path in parts.runtime),
    ]
    sources = sorted(model.glob("*.cpp"))
    for runtime in parts.runtime:
        sources += sorted(runtime.glob("*.cpp"))
    # The longest first, so that the last one does not run alone.
    sources.sort(key=lambda path: path.stat().st_size, reverse=True)
    objects = [folder / f"{path.stem}.o" for path in sources]

    def compile_one(path: Path, target: Path) -> None:
        level = SLOW if "__Slow" in path.name or "Trace" in path.name else parts.level
        _run([*compiler, level, "-c", str(path), "-o", str(target)])

    def compile_shared(name: str) -> Path:
        """Verilator's own library is the same for every device."""
        recipe = f"{name} {verilator_version()} {version} {compiler_flags} {parts.level}"
        digest = hashlib.sha256(recipe.encode()).hexdigest()[:20]

        def make(entry: Path) -> None:
            unfinished = entry / "unfinished.o"
            compile_one(include / name, unfinished)
            unfinished.rename(entry / "object.o")

        return cache.kept("objects", digest, "object.o", make)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        shared = [pool.submit(compile_shared, name) for name in names]
        jobs = [pool.submit(compile_one, *pair) for pair in zip(sources, objects, strict=True)]
        both: list[concurrent.futures.Future[Any]] = [*shared, *jobs]
        try:
            for number, job in enumerate(concurrent.futures.as_completed(both), 1):
                job.result()
                tell(progress, f"compile {number} of {len(both)}")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    unfinished = folder / f"{parts.output}.unfinished"
    libraries = ["-llz4", "-lz"] if trace else []
    shared_flags = ["-shared", "-Wl,-Bsymbolic"] if parts.output.endswith(".so") else []
    _run(
        [
            compiler[0],
            *shared_flags,
            "-pthread",
            *map(str, objects),
            *(str(job.result()) for job in shared),
            "-o",
            str(unfinished),
            *libraries,
        ]
    )
    for path in objects:
        path.unlink()
    unfinished.rename(folder / parts.output)


def _run(command: list[str]) -> None:
    result = subprocess.run(command, env=verilator_environment(), capture_output=True, text=True)
    if result.returncode:
        output = (result.stdout + result.stderr)[-4000:]
        raise BuildError(f"{' '.join(command[:2])} ... failed ({result.returncode}):\n{output}")
