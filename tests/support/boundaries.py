"""`make boundaries`: every block's size parameters, with the values that tests elaborate.

A *size parameter* of a block is an integer (or a list of them) of its constructor, and each field
of `RnicConfig` that the block itself reads; layouts of ports do not count. A field has the range of
the configuration. The smallest value of another parameter is the smallest that the constructor
takes: it is called with smaller ones, and refuses with a ValueError what is not allowed. The
largest is the largest of those devices; where the constructor checks nothing, the smallest is
theirs, too. Rates and times of the host link are no sizes.

The tests of blocks are run up to the elaboration of each component; nothing is simulated here. The
default, the smallest and the largest device are elaborated, too, alone and on a board; through the
smallest tests/integration/test_boundaries.py moves data. The command prints one line per parameter,
writes build/boundaries.json, and exits with 1 if the smallest or the largest value of one is
elaborated by nobody.
"""

import inspect
import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
from amaranth.hdl import Fragment, UnusedElaboratable
from amaranth.lib import wiring
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from stagecoach.gateware.config import DATA_WIDTHS, WORD_WIDTH, RnicConfig
from stagecoach.gateware.hostlink.serial_rnic import SerialRnic
from stagecoach.gateware.rnic import Rnic
from stagecoach.hw.boards.board import find
from stagecoach.hw.interface.hostlink import MAXIMUM_BEATS
from stagecoach.hw.interface.sizes import SIZES
from stagecoach.sim.cosim import runner
from tests.support.sizes import LARGEST, SMALLEST

GATEWARE = "stagecoach.gateware."
ROOT = Path(__file__).parents[2]
OUTPUT = ROOT / "build" / "boundaries.json"
TESTS = [
    *(
        f"tests/{folder}"
        for folder in ("ddp", "dma", "mpa", "queues", "rdmap", "registers", "stag", "stream")
    ),
    *(
        f"tests/hostlink/test_{name}.py"
        for name in ("link", "llp_bridge", "memory_bridge", "octets", "register_bridge", "uart")
    ),
]
NO_SIZES = (
    "gateware/layouts.py",
    "gateware/mpa/layouts.py",
    "gateware/mpa/ports.py",
    "gateware/queues/fetch/visit.py",
    "gateware/queues/ports.py",
    "gateware/rdmap/transmit/message.py",
)
"""Files that read the configuration for the shapes of ports."""

BOARD = find("ecpix5-45")
NO_SIZE = ("shape", "clock_hz", "baud", "retry_cycles")
"""Integers that are layouts, rates and times."""

TRIED = sorted({*range(9), *(1 << bits for bits in range(4, 17))})
"""Values that a constructor is called with."""

CONFIG_ENDS = {name: (size.least, size.most) for name, size in SIZES.items()}
CONFIG_ENDS |= {"data_width": (min(DATA_WIDTHS), max(DATA_WIDTHS))}
CONFIG_ENDS |= dict.fromkeys(("counters", "answers"), (False, True))


@dataclass
class Built:
    """One block of an elaborated component: class and arguments of its constructor."""

    block: type
    arguments: dict[str, Any]


class Recorder:
    """Notes the blocks of what is elaborated, and which fields of a configuration each block reads.

    Attributes
    ----------
    tested, in_devices: what was elaborated by tests of blocks, and within whole devices.
    """

    def __init__(self) -> None:
        self.tested: list[Built] = []
        self.in_devices: list[Built] = []
        self.read: dict[type, set[str]] = {}
        self.into = self.tested

    def start(self) -> None:
        """Listens to all components, and to all configurations."""
        construct = wiring.Component.__init__
        names = {field.name for field in fields(RnicConfig)}

        def constructed(component: Any, *signature: Any, **options: Any) -> None:
            self._watch(component)
            construct(component, *signature, **options)

        def read(config: RnicConfig, name: str) -> Any:
            if name in names:
                self._note(name)
            return object.__getattribute__(config, name)

        wiring.Component.__init__ = constructed
        RnicConfig.__getattribute__ = read  # type: ignore[method-assign, assignment]

    def _watch(self, component: Any) -> None:
        """Notes a component, with the arguments of its constructor, when it is elaborated."""
        block = type(component)
        frame, values = sys._getframe(2), {}
        while frame.f_locals.get("self") is component:
            if frame.f_code is block.__init__.__code__:
                values = dict(frame.f_locals)
            frame = frame.f_back  # type: ignore[assignment]
        names = list(inspect.signature(block.__init__).parameters)[1:]
        built = Built(block, {name: values[name] for name in names if name in values})
        elaborate = component.elaborate

        def elaborated(platform: Any) -> Any:
            self.into.append(built)
            return elaborate(platform)

        component.elaborate = elaborated

    def _note(self, name: str) -> None:
        """Finds the block whose code reads a field."""
        frame = sys._getframe(2)
        while frame is not None and not frame.f_code.co_filename.endswith(NO_SIZES):
            reader = frame.f_locals.get("self")
            if isinstance(reader, wiring.Component):
                self.read.setdefault(type(reader), set()).add(name)
                return
            frame = frame.f_back  # type: ignore[assignment]


RECORDER = Recorder()


_elaborated: WeakSet[Any] = WeakSet()  # not every component can be elaborated twice


def elaborate_only(component: Any, **_: Any) -> Path:
    """Takes the place of `sim.cosim.runner.build`: elaborates all blocks of a component."""
    if component not in _elaborated:
        _elaborated.add(component)
        for part in (component, *getattr(component, "parts", {}).values()):
            Fragment.get(part, None)
    pytest.skip("elaborated")


def elaborate_devices() -> None:
    """The default device, and those of the test; each alone and on a board."""
    RECORDER.into = RECORDER.in_devices
    for config in (RnicConfig(), SMALLEST, LARGEST):
        Fragment.get(Rnic(config), None)
        beats = min(config.max_burst_beats, MAXIMUM_BEATS)
        on_board = replace(config, data_width=WORD_WIDTH, max_burst_beats=beats)
        Fragment.get(SerialRnic(on_board, BOARD.clock_hz, BOARD.baud), None)


@dataclass
class Row:
    """A size parameter: what is allowed, and the values that are elaborated."""

    block: str
    parameter: str
    smallest: int
    largest: int
    in_block_tests: list[int]
    in_devices: list[int]

    @property
    def missing(self) -> list[int]:
        """The ends of the range that nobody elaborates."""
        found = {*self.in_block_tests, *self.in_devices}
        return [end for end in dict.fromkeys((self.smallest, self.largest)) if end not in found]


def sizes(built: Built) -> Iterator[tuple[str, int]]:
    """The size parameters of a block with their values."""
    for name, value in built.arguments.items():
        if isinstance(value, RnicConfig):
            for field in sorted(RECORDER.read.get(built.block, ())):
                yield f"config.{field}", object.__getattribute__(value, field)
        elif type(value) in (int, bool) and name not in NO_SIZE:
            yield name, value
        elif isinstance(value, list | tuple) and {type(one) for one in value} == {int}:
            yield f"len({name})", len(value)


def refuses(built: Built, name: str, value: Any) -> bool:
    """Whether the constructor says that another value of an argument is not allowed."""
    try:
        built.block(**{**built.arguments, name: value})
    except ValueError as error:
        return "allowed" in str(error)
    except Exception:  # it does not look
        return False
    return False


def ends_of_field(built: Built, field: str) -> tuple[int, int]:
    """Those of the configuration, without what the block refuses."""
    name, config = next(
        (name, value) for name, value in built.arguments.items() if isinstance(value, RnicConfig)
    )
    least, most = CONFIG_ENDS[field]
    values = sorted({least, most, *(1 << bits for bits in range(21) if least < 1 << bits < most)})
    if type(least) is bool or field == "data_width":
        values = [least, most, object.__getattribute__(config, field)]
    for end in (least, most):
        if refuses(built, name, replace(config, **{field: end})):
            allowed = [v for v in values if not refuses(built, name, replace(config, **{field: v}))]
            return min(allowed), max(allowed)
    return least, most


def ends(built: Built, name: str, found: set[int]) -> tuple[int, int]:
    """The smallest and the largest value that is allowed; `found` are those of devices, if any."""
    if name.startswith("config."):
        return ends_of_field(built, name.removeprefix("config."))
    if type(built.arguments.get(name)) is bool:
        return False, True
    least = min(found)
    if name in built.arguments and refuses(built, name, -1):
        smaller = (one for one in TRIED if one < least and not refuses(built, name, one))
        least = next(smaller, least)
    return least, max(found)


def table() -> list[Row]:
    """All size parameters of all blocks."""
    known: dict[tuple[str, str], tuple[Built, set[int], set[int]]] = {}
    for number, blocks in enumerate((RECORDER.tested, RECORDER.in_devices)):
        for built in blocks:
            if not built.block.__module__.startswith(GATEWARE):
                continue
            for name, value in sizes(built):
                key = (f"{built.block.__module__}.{built.block.__name__}", name)
                known.setdefault(key, (built, set(), set()))[1 + number].add(value)
    rows = []
    for (block, name), (built, tested, in_devices) in sorted(known.items()):
        least, most = ends(built, name, in_devices or tested)
        rows.append(Row(block, name, least, most, sorted(tested), sorted(in_devices)))
    return rows


def show(rows: list[Row]) -> None:
    """One line for each parameter."""
    shown = Table(title="Sizes of blocks that tests elaborate", box=SIMPLE)
    for heading in ("block", "parameter", "allowed", "in tests of blocks", "in devices", ""):
        shown.add_column(heading, overflow="fold")
    for row in rows:
        values = [", ".join(map(str, one)) for one in (row.in_block_tests, row.in_devices)]
        allowed = f"{row.smallest} to {row.largest}"
        why = f"nowhere: {', '.join(map(str, row.missing))}" if row.missing else ""
        block = row.block.removeprefix(GATEWARE)
        shown.add_row(block, row.parameter, allowed, *values, why)
    Console(width=140).print(shown)


def main() -> int:
    """Elaborates, prints and writes the table; returns the exit status."""
    warnings.simplefilter("ignore", UnusedElaboratable)  # of constructors that are only called
    RECORDER.start()
    runner.build = elaborate_only
    status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS])
    elaborate_devices()
    rows = table()
    show(rows)
    OUTPUT.parent.mkdir(exist_ok=True)
    missing = [row for row in rows if row.missing]
    found = [asdict(row) | {"missing": row.missing} for row in rows]
    OUTPUT.write_text(json.dumps({"parameters": found, "missing_count": len(missing)}, indent=2))
    print(f"{len(rows)} parameters, {len(missing)} with an end that is elaborated nowhere")
    return int(bool(missing) or status != pytest.ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main())
