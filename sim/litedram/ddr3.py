"""A model of a DDR3 chip of 16 data pins: what it keeps, and what of its timing was violated.

Written from JESD79-3 and the data sheet of MT41K256M16 (Micron, -125). Times are cycles of 75 MHz:
two of the chip's clock at 150 MHz.
"""

from collections.abc import Callable
from math import ceil

BEATS = 8
"""Of a burst."""

CYCLE_NS = 1000 / 75
COLUMN_MASK = 0x3FF
A10 = 1 << 10


def _cycles(ns: float = 0.0, clocks: int = 0) -> int:
    return max(ceil(ns / CYCLE_NS), ceil(clocks / 2))


T_RCD = _cycles(13.75)
T_RP = _cycles(13.75)
T_RAS = _cycles(35)
T_RAS_MAXIMUM = _cycles(9 * 7800)
T_RFC = _cycles(260)
T_REFI = _cycles(7800)
T_MRD = _cycles(clocks=4)
T_MOD = _cycles(15, 12)
T_XPR = _cycles(270, 5)
T_ZQINIT = _cycles(640, 512)
T_DLLK = _cycles(clocks=512)
T_RTP = _cycles(7.5, 4)
T_WRITE = _cycles(clocks=5 + 4) + _cycles(15)
T_RESET = _cycles(200_000)
T_CKE = _cycles(500_000)
CAS_LATENCIES = {0b0010: 5, 0b0100: 6, 0b0110: 7, 0b1000: 8}
"""By bits 6 to 4 and 2 of mode register 0."""

Address = tuple[int, int, int]
"""Bank, row, column of a burst."""


class Ddr3:
    """A chip that is given commands at a time that never goes back.

    `violations` has in words what no chip has to bear.

    Parameters
    ----------
    wired: the place that a burst gets whose place is named: a fault of address pins.
    kept: the words that a burst keeps of those written at a place: a fault of cells.
    """

    def __init__(
        self,
        wired: Callable[[Address], Address] = lambda place: place,
        kept: Callable[[Address, list[int]], list[int]] = lambda _, words: words,
    ):
        self._wired, self._kept = wired, kept
        self.violations: list[str] = []
        self.cells: dict[Address, list[int]] = {}
        self._forget()
        self._in_reset_since: int | None = None
        self._reset_seen = False

    def _forget(self) -> None:
        self.modes: dict[int, int] = {}
        self._calibrated = False
        self._rows: dict[int, tuple[int, int]] = {}  # bank: row, and when it was opened
        self._free: dict[int, int] = {}  # bank: when it may be opened
        self._awake: int | None = None  # when CKE went high
        self._released: int | None = None  # when RESET# went high
        self._busy_until = 0
        self._locked = 0
        self.refreshed: int | None = None

    def _require(self, now: int, since: int | None, least: int, what: str) -> None:
        if since is None:
            self.violations.append(f"{now}: {what}: it never was")
        elif now - since < least:
            self.violations.append(f"{now}: {what} is {now - since} cycles; at least {least}")

    @property
    def cas_latency(self) -> int | None:
        """Of mode register 0."""
        mode = self.modes.get(0, 0)
        return CAS_LATENCIES.get(mode >> 3 & 0b1110 | mode >> 2 & 1)

    @property
    def cas_write_latency(self) -> int:
        """Of mode register 2."""
        return 5 + (self.modes.get(2, 0) >> 3 & 0b111)

    def is_usable(self) -> bool:
        """Whether all four mode registers are loaded and the drivers calibrated."""
        return self.modes.keys() == {0, 1, 2, 3} and self._calibrated

    def pins(self, now: int, reset_n: bool, cke: bool) -> None:
        """RESET# and CKE."""
        if not reset_n:
            self._forget()
            if self._in_reset_since is None:
                self._in_reset_since = now
            if cke:
                self.violations.append(f"{now}: CKE is high in reset")
            return
        if self._in_reset_since is not None:
            self._require(now, self._in_reset_since, T_RESET, "RESET# low")
            self._in_reset_since, self._released, self._reset_seen = None, now, True
        if cke and self._awake is None:
            self._awake = now
            if self._reset_seen:
                self._require(now, self._released, T_CKE, "CKE low after RESET#")
        elif not cke and self._awake is not None:
            self.violations.append(f"{now}: CKE goes low")
            self._awake = None

    def refresh(self, now: int) -> None:
        """Precharge all, and refresh."""
        for bank in list(self._rows):
            self._close(now, bank)
            now += T_RP
        if self._awake is not None:
            self._begin(now, T_RFC)
            self.refreshed = now

    def _begin(self, now: int, cycles: int) -> None:
        if now < self._busy_until:
            self.violations.append(f"{now}: a command before {self._busy_until}")
        self._busy_until = now + cycles

    def command(
        self, now: int, ras: bool, cas: bool, we: bool, address: int, bank: int
    ) -> Address | None:
        """A command with CS; returns the place of a READ or a WRITE."""
        if self._awake is None:
            self.violations.append(f"{now}: a command without CKE")
            return None
        self._require(now, self._awake, T_XPR, "CKE high")
        if self.refreshed is not None and now - self.refreshed > 9 * T_REFI:
            self.violations.append(f"{now}: not refreshed since {self.refreshed}")
        match ras, cas, we:
            case True, True, True:
                self._begin(now, T_MOD)
                self.modes[bank] = address
                if bank == 0 and address & 1 << 8:
                    self._locked = now + T_DLLK
            case True, True, False:
                self.refresh(now)
            case False, False, True:
                self._begin(now, T_ZQINIT)
                self._calibrated = bool(address & A10)
            case True, False, False:
                self._open(now, bank, address)
            case True, False, True:
                for one in list(self._rows) if address & A10 else [bank]:
                    self._close(now, one)
            case False, True, _:
                return self._access(now, bank, address, we)
        return None

    def _open(self, now: int, bank: int, row: int) -> None:
        self._begin(now, 0)
        if bank in self._rows:
            self.violations.append(f"{now}: bank {bank} is open")
        if now < self._free.get(bank, 0):
            self.violations.append(f"{now}: bank {bank} is not closed until {self._free[bank]}")
        self._rows[bank] = row, now

    def _close(self, now: int, bank: int) -> None:
        if bank in self._rows:
            _, opened = self._rows.pop(bank)
            self._require(now, opened, T_RAS, "a row is open")
            if now - opened > T_RAS_MAXIMUM:
                self.violations.append(f"{now}: a row was open for {now - opened} cycles")
        self._free[bank] = now + T_RP
        self._busy_until = max(self._busy_until, now + T_RP)

    def _access(self, now: int, bank: int, address: int, write: bool) -> Address | None:
        self._begin(now, 0)
        if bank not in self._rows:
            self.violations.append(f"{now}: no row of bank {bank} is open")
            return None
        row, opened = self._rows[bank]
        self._require(now, opened, T_RCD, "ACTIVATE to READ or WRITE")
        if now < self._locked:
            self.violations.append(f"{now}: the DLL is not locked until {self._locked}")
        if address & A10:
            self._close(max(now + (T_WRITE if write else T_RTP), opened + T_RAS), bank)
        return self._wired((bank, row, address & COLUMN_MASK & ~(BEATS - 1)))

    def write(self, place: Address, words: list[int]) -> None:
        """What comes to a WRITE."""
        self.cells[place] = self._kept(place, list(words))

    def read(self, place: Address) -> list[int]:
        """What answers a READ."""
        return self.cells.get(place, [0xBAD0 + beat for beat in range(BEATS)])
