"""A board's memory from reset to use."""

import time
from collections.abc import Callable

from stagecoach.host_driver.board_memory.bursts import Bursts
from stagecoach.host_driver.board_memory.errors import MemoryTestFailed
from stagecoach.host_driver.board_memory.levelling import Levelling, Progress
from stagecoach.host_driver.board_memory.margins import Margins
from stagecoach.host_driver.board_memory.memory_test import check_memory
from stagecoach.host_driver.board_memory.window import (
    BUSY_SECONDS,
    ControllerWindow,
    RegisterAccess,
)


def no_progress(step: str, done: int, total: int) -> None:
    """Tells nobody."""


class BoardMemory:
    """The memory of a board, whose controller is LiteDRAM (`hw/interface/litedram.py`).

    It stays as it is when a session ends: the memory is started once after configuration, and its
    bytes outlive the program. One thread at a time. Raises `NoBoardMemory`.

    Parameters
    ----------
    device: its registers, a `Context` or a `Device`.
    sleep: waits so many seconds. busy_seconds: for which an access may take.
    """

    def __init__(
        self,
        device: RegisterAccess,
        sleep: Callable[[float], None] = time.sleep,
        busy_seconds: float = BUSY_SECONDS,
    ):
        self._device = device
        self._window = ControllerWindow(device, sleep, busy_seconds)

    def __repr__(self) -> str:
        return f"<BoardMemory of {self._device!r}>"

    @property
    def is_ready(self) -> bool:
        """Whether it was started. Raises `MemoryControllerError`."""
        return bool(self._window.read("ddrctrl_init_done"))

    def start(self, progress: Progress = no_progress) -> Margins:
        """Initialise, level and test the memory, and open it to its users; its bytes are lost.

        A `SerialNic` does this when it is opened. Later it has rings there: not while it is open.

        Returns what levelling has found. Raises `MemoryControllerError` if the controller does not
        answer, `MemoryNotLevelled` and `MemoryTestFailed`; the memory stays shut then.
        """
        window = self._window
        bursts = Bursts(window)
        window.write("ddrctrl_init_done", 0)
        window.write("ddrctrl_init_error", 1)  # until it is not
        progress("initialisation", 0, 1)
        bursts.initialise()
        progress("initialisation", 1, 1)
        margins = Levelling(window, bursts).run(progress)
        try:
            check_memory(bursts, progress)
        except MemoryTestFailed as error:
            raise MemoryTestFailed(
                error.test, error.place, error.written, error.read, margins
            ) from None
        window.write("ddrctrl_init_error", 0)
        window.write("ddrctrl_init_done", 1)
        window.wait(0)
        return margins
