"""Commands to the memory by software: its first steps, and bursts that are written and read.

A burst is opened, read or written and closed by commands that the device makes one right after the
other: a row may be open for 70 us at most (JESD79-3, tRAS), and an access of the host takes longer.
Before and after them LiteDRAM's controller has the memory, and refreshes it.
"""

from stagecoach.host_driver.board_memory.errors import Place
from stagecoach.host_driver.board_memory.window import ControllerWindow
from stagecoach.hw.interface.litedram import (
    CAS,
    CKE,
    CS,
    ODT,
    RAS,
    RDDATA,
    RESET_N,
    SEL,
    SETTINGS,
    STEPS,
    WE,
    WRDATA,
)

LANES = SETTINGS["databits"] // 8

BURST = 8
"""Columns of a burst (BL8)."""

BURST_OCTETS = BURST * LANES

_PHASE_OCTETS = BURST_OCTETS // SETTINGS["nphases"]

AUTO_PRECHARGE = 1 << 10
"""Address bit of a read or a write that closes the row after it."""

RESET_CYCLES = 15_000
"""200 us with RESET# low (JESD79-3, power-up), in cycles of `user_clk`."""

WAIT_FACTOR = 2
"""LiteDRAM's waits are loops of its processor, each longer than a cycle; ZQ calibration needs 256
cycles (tZQinit) where it has 200."""

_SOFTWARE = CKE | ODT | RESET_N

SETTLE_REFRESH = 2
"""Accesses, which begin 6 cycles of `user_clk` or more apart, by which a refresh has its 20 cycles
(tRFC): with those that are needed anyway there are four."""

SETTLE_AFTER = 1
"""The same until the row is closed, 9 cycles after a write (CWL, tWR, tRP)."""


class Bursts:
    """Initialises the memory, and writes and reads bursts while nobody else uses it.

    Errors are those of `ControllerWindow`.
    """

    def __init__(self, window: ControllerWindow):
        self._window = window

    def initialise(self) -> None:
        """Reset the memory and load its mode registers; what it held is lost."""
        window = self._window
        window.write("sdram_dfii_control", 0)
        window.wait(RESET_CYCLES)
        for step in STEPS:
            window.write("sdram_dfii_pi0_address", step.address)
            window.write("sdram_dfii_pi0_baddress", step.bank)
            if step.control is not None:
                window.write("sdram_dfii_control", step.control)
            else:
                window.write("sdram_dfii_pi0_command", step.command or 0)
                window.write("sdram_dfii_pi0_command_issue", 1)
            window.wait(WAIT_FACTOR * step.wait)
        window.write("sdram_dfii_control", SEL)

    def write(self, place: Place, octets: bytes) -> None:
        """Write a burst: byte n belongs to lane n mod `LANES`."""
        if len(octets) != BURST_OCTETS:
            raise ValueError(f"{len(octets)} bytes of a burst; allowed: {BURST_OCTETS}")
        for phase in range(SETTINGS["nphases"]):
            part = octets[phase * _PHASE_OCTETS : (phase + 1) * _PHASE_OCTETS]
            self._window.write(f"sdram_dfii_pi{phase}_wrdata", int.from_bytes(part, "little"))
        self._access(SETTINGS["wrphase"], CAS | WE | CS | WRDATA, place, "write of a burst")

    def read(self, place: Place) -> tuple[bytes, int]:
        """What is read, and a bit for each lane: whether its PHY has seen a whole burst."""
        window = self._window
        window.write("ddrphy_burstdet_clr", 1)
        self._access(SETTINGS["rdphase"], CAS | CS | RDDATA, place, "read of a burst")
        parts = [
            window.read(f"sdram_dfii_pi{phase}_rddata").to_bytes(_PHASE_OCTETS, "little")
            for phase in range(SETTINGS["nphases"])
        ]
        return b"".join(parts), window.read("ddrphy_burstdet_seen")

    def _access(self, phase: int, command: int, place: Place, name: str) -> None:
        """Refresh, open the row in another phase, do it, close the row.

        A refresh that the controller begins meanwhile does not reach the memory; the first one
        here stands for it. Seven accesses before that let end what the controller has begun before:
        a refresh, or a ZQ calibration of 32 cycles (tZQCS).
        """
        write = self._window.write
        opening = (phase + 1) % SETTINGS["nphases"]
        issue_opening = f"sdram_dfii_pi{opening}_command_issue"
        with self._window.together(name):
            write("sdram_dfii_control", _SOFTWARE)
            for number, address in ((opening, place.row), (phase, place.column | AUTO_PRECHARGE)):
                write(f"sdram_dfii_pi{number}_address", address)
                write(f"sdram_dfii_pi{number}_baddress", place.bank)
            write(f"sdram_dfii_pi{phase}_command", command)
            write(f"sdram_dfii_pi{opening}_command", RAS | CAS | CS)
            write(issue_opening, 1)
            write(f"sdram_dfii_pi{opening}_command", RAS | CS)
            for _ in range(SETTLE_REFRESH):
                write("sdram_dfii_control", _SOFTWARE)
            write(issue_opening, 1)
            write(f"sdram_dfii_pi{phase}_command_issue", 1)
            for _ in range(SETTLE_AFTER):
                write("sdram_dfii_control", _SOFTWARE)
            write("sdram_dfii_control", SEL)
