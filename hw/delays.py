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
        cell = ""
        try:
            with path.open() as lines:
                if not next(lines, "").startswith("(DELAYFILE"):
                    raise NotSdf(f"{path} is no SDF file; `python -m hw.timing` leaves one")
                for line in lines:
                    words = line.replace("\\", "").split()
                    match words:
                        case ["(INTERCONNECT", source, target, delay, *_]:
                            found.wires[target] = source, _slowest(delay)
                        case ["(INSTANCE", name, *_]:
                            cell = name.rstrip(")")
                        case ["(IOPATH", source, target, delay, *_]:
                            pin = f"{cell}/{source}"
                            found.through[f"{cell}/{target}"].append((pin, _slowest(delay)))
                        case ["(SETUPHOLD", _, port, _, _, delay, *_]:
                            found.setup[f"{cell}/{port.rstrip(')')}"] = _slowest(delay)
        except (OSError, UnicodeDecodeError) as error:
            raise NotSdf(f"{path}: {error}") from error
        return found


def _slowest(delays: str) -> float:
    """ns of `(minimum:typical:maximum)`, which are in ps."""
    return int(delays.strip("()").split(":")[2]) / 1000
