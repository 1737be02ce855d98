"""Read levelling: finds the delay and the bitslip at which each byte lane reads right.

Every lane tries all of them, at the same time as the other lanes. A setting is right if each of
`READS` reads of each pattern is, and its PHY has seen the whole burst. An ECP5 writes without
levelling.
"""

from collections.abc import Callable

from stagecoach.host_driver.board_memory.bursts import BURST_OCTETS, LANES, Bursts
from stagecoach.host_driver.board_memory.errors import MemoryNotLevelled, Place
from stagecoach.host_driver.board_memory.margins import LaneMargin, Margins
from stagecoach.host_driver.board_memory.window import ControllerWindow
from stagecoach.hw.interface.litedram import SETTINGS

Progress = Callable[[str, int, int], None]
"""Called with a step in words, how much of it is done, and of how much."""

_PATTERN = bytes.fromhex("3ac5914e7b08e6d72df01c6953a48bb2")
PATTERNS = (_PATTERN, bytes(octet ^ 0xFF for octet in _PATTERN))
"""No pin has the same eight bits after a shift by up to four, and each has both levels at each
time."""

_PLACE = Place(0, 0, 0)
"""One for all patterns: levelling does not depend on address pins."""

READS = 2

ALL_LANES = (1 << LANES) - 1


class Levelling:
    """Levels a memory that is initialised.

    Errors are those of `ControllerWindow`, and `MemoryNotLevelled`.
    """

    def __init__(self, window: ControllerWindow, bursts: Bursts):
        self._window = window
        self._bursts = bursts

    def run(self, progress: Progress) -> Margins:
        """Level all lanes, and leave each in the middle of its widest window."""
        margins = self._scan(progress)
        chosen = 0
        for lane in margins.lanes:
            if lane.chosen is not None:
                self._set(1 << lane.lane, lane.chosen.bitslip, lane.chosen.delay)
                chosen |= 1 << lane.lane
        _require(chosen, "reads right at no delay and no bitslip", margins)
        self._resume()
        _require(self._right(), "reads wrong at the chosen delay", margins)
        return margins

    def _scan(self, progress: Progress) -> Margins:
        bitslips, delays = range(SETTINGS["bitslips"]), range(SETTINGS["delays"])
        total = len(bitslips) * len(delays)
        found: list[list[int]] = []
        for bitslip in bitslips:
            found.append([])
            for delay in delays:
                progress("read levelling", len(delays) * bitslip + delay, total)
                self._set(ALL_LANES, bitslip, delay)
                self._resume()
                found[-1].append(self._right())
        progress("read levelling", total, total)
        return Margins(
            tuple(
                LaneMargin(
                    lane, tuple(tuple(bool(one >> lane & 1) for one in row) for row in found)
                )
                for lane in range(LANES)
            )
        )

    def _set(self, lanes: int, bitslip: int, delay: int) -> None:
        """Give lanes a bitslip and a delay; they pause from now on."""
        window = self._window
        window.write("ddrphy_dly_sel", lanes)
        window.write("ddrphy_rdly_dq_rst", 1)
        for _ in range(delay):
            window.write("ddrphy_rdly_dq_inc", 1)
        window.write("ddrphy_rdly_dq_bitslip_rst", 1)
        for _ in range(bitslip):
            window.write("ddrphy_rdly_dq_bitslip", 1)

    def _resume(self) -> None:
        """Let all lanes go on together, or they are not in step (liblitedram, `sdram_deselect`)."""
        self._window.write("ddrphy_dly_sel", ALL_LANES)
        self._window.write("ddrphy_dly_sel", 0)

    def _right(self) -> int:
        """A bit for each lane: whether it reads all patterns right."""
        right = ALL_LANES
        for pattern in PATTERNS:
            self._bursts.write(_PLACE, pattern)
            for _ in range(READS):
                octets, seen = self._bursts.read(_PLACE)
                right &= seen
                for index in range(BURST_OCTETS):
                    if octets[index] != pattern[index]:
                        right &= ~(1 << index % LANES)
        return right


def _require(lanes: int, what: str, margins: Margins) -> None:
    """Raises `MemoryNotLevelled` for the lanes that are not there."""
    others = [str(lane) for lane in range(LANES) if not lanes >> lane & 1]
    if others:
        raise MemoryNotLevelled(f"byte lane {' and '.join(others)} {what}", margins)
