"""Reads the delays that nextpnr leaves in an SDF file."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

CLOCKS = {"CLK", "CLKA", "CLKB", "WCK"}
NO_START = ("$PACKER_", "$tr_io")
"""In names of cells whose outputs do not change, or not with the clock."""


class NotSdf(Exception):
    """A file is not one of nextpnr's delays; the message names it."""


@dataclass
class Delays:
    """What an SDF file says, in ns: wires, cells from input to output, and setup times.

    Pins are named `cell/port`. `wires` gives the pin that drives an input, and the delay from it.
    """

    wires: dict[str, tuple[str, float]] = field(default_factory=dict)
    through: dict[str, list[tuple[str, float]]] = field(default_factory=lambda: defaultdict(list))
    setup: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Delays":
        """Reads a file. Raises `NotSdf`."""
        found = cls()
        cell = line = ""
        number = 1
        try:
            with path.open() as lines:
                if not next(lines, "").startswith("(DELAYFILE"):
                    raise NotSdf(
                        f"{path} is not an SDF file; `python -m stagecoach.hw.timing` writes one"
                    )
                for line in lines:
                    number += 1
                    words = line.replace("\\", "").split()
                    match words:
                        case ["(INTERCONNECT", source, target, delay, *_]:
                            found.wires[_pin(target)] = _pin(source), _slowest(delay)
                        case ["(INSTANCE", name, *_]:
                            cell = name.rstrip(")")
                        case ["(IOPATH", source, target, delay, *_]:
                            pin = f"{cell}/{source}"
                            found.through[f"{cell}/{target}"].append((pin, _slowest(delay)))
                        case ["(SETUPHOLD", _, port, _, _, delay, *_]:
                            found.setup[f"{cell}/{port.rstrip(')')}"] = _slowest(delay)
        except (OSError, UnicodeDecodeError) as error:
            raise NotSdf(f"{path}: {error}") from error
        except _BadWord as error:
            raise NotSdf(f"{path}, line {number}: {error}") from error
        # The parentheses within are indented.
        if line.rstrip() != ")":
            raise NotSdf(f"{path} is cut off: it has no closing parenthesis in its last line")
        return found


class _BadWord(Exception):
    """A word of a line is not what it must be."""


def _pin(name: str) -> str:
    if "/" not in name:
        raise _BadWord(f"pin {name!r}; allowed: cell/port")
    return name


def _slowest(delays: str) -> float:
    """ns of `(minimum:typical:maximum)`, which are in ps."""
    try:
        return int(delays.strip("()").split(":")[2]) / 1000
    except (IndexError, ValueError):
        raise _BadWord(f"delay {delays!r}; allowed: (minimum:typical:maximum) in ps") from None
