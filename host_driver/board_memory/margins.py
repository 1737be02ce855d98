"""At which delays each byte lane of a memory reads right, and which of them is chosen."""

from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class Window:
    """Delays `first` to `last` of a bitslip, all of which read right."""

    bitslip: int
    first: int
    last: int

    @property
    def width(self) -> int:
        """How many delays it has."""
        return self.last - self.first + 1

    @property
    def delay(self) -> int:
        """The one in the middle; of two, the first."""
        return (self.first + self.last) // 2


@dataclass(frozen=True)
class LaneMargin:
    """What was found for a byte lane.

    Attributes
    ----------
    lane: its number; lane n has data pins 8n to 8n + 7.
    right: for each bitslip, for each delay, whether everything was read right.
    """

    lane: int
    right: tuple[tuple[bool, ...], ...]

    @property
    def windows(self) -> tuple[Window, ...]:
        """All of them, by bitslip and delay."""
        found = []
        for bitslip, delays in enumerate(self.right):
            for is_right, group in groupby(range(len(delays)), key=delays.__getitem__):
                numbers = list(group)
                if is_right:
                    found.append(Window(bitslip, numbers[0], numbers[-1]))
        return tuple(found)

    @property
    def chosen(self) -> Window | None:
        """The widest one, of several the first; `None` if there is none."""
        return max(self.windows, key=lambda window: window.width, default=None)


@dataclass(frozen=True)
class Margins:
    """What levelling has found, a lane each. As text a table."""

    lanes: tuple[LaneMargin, ...]

    @property
    def least(self) -> int:
        """Delays of the narrowest chosen window; 0 if a lane has none."""
        return min(lane.chosen.width if lane.chosen else 0 for lane in self.lanes)

    def __str__(self) -> str:
        rows = ["lane  bitslip  delays    window  chosen"]
        for lane in self.lanes:
            chosen = lane.chosen
            for bitslip, delays in enumerate(lane.right):
                signs = "".join("+" if is_right else "." for is_right in delays)
                row = f"{lane.lane:4}  {bitslip:7}  {signs}"
                if chosen is not None and chosen.bitslip == bitslip:
                    row += f"  {chosen.first} to {chosen.last}  delay {chosen.delay}"
                rows.append(row)
            if chosen is None:
                rows.append(f"{lane.lane:4}  reads right at no delay")
        return "\n".join(rows)
