"""What can be wrong with the memory of a board."""

from dataclasses import dataclass

from stagecoach.host_driver.board_memory.margins import Margins
from stagecoach.host_driver.errors import DeviceError


class NoBoardMemory(DeviceError):
    """The device has no memory of its own, or one that this driver does not know."""


class MemoryControllerError(DeviceError):
    """The memory controller refuses an access or does not answer it in time."""


class MemoryNotLevelled(DeviceError):
    """A byte lane reads right at no delay, or no more at the delay that was chosen.

    Attributes
    ----------
    margins: what was found.
    """

    def __init__(self, what: str, margins: Margins):
        self.margins = margins
        super().__init__(f"{what}\n{margins}")


@dataclass(frozen=True)
class Place:
    """A burst of the memory: bank, row, and its first column."""

    bank: int
    row: int
    column: int

    def __str__(self) -> str:
        return f"bank {self.bank}, row {self.row:#x}, column {self.column:#x}"


class MemoryTestFailed(DeviceError):
    """The memory holds other bytes than were written.

    Attributes
    ----------
    test: which. place: where. written, read: the bytes of the burst.
    margins: of the levelling before it, or `None`.
    """

    def __init__(
        self, test: str, place: Place, written: bytes, read: bytes, margins: Margins | None = None
    ):
        self.test, self.place = test, place
        self.written, self.read, self.margins = written, read, margins
        text = f"{test} at {place}: {written.hex()} was written, {read.hex()} read"
        super().__init__(text if margins is None else f"{text}\n{margins}")
