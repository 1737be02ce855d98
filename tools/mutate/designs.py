"""The devices whose netlists are compared, each as RTLIL by module; run in the changed copy.

`python -m tools.mutate.designs NAME FILE` writes one as JSON.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.hostlink.serial_rnic import SerialRnic
from stagecoach.gateware.rnic import Rnic
from stagecoach.hw.rtlil import export
from tools.mutate.netlist import modules

DESIGNS: dict[str, Callable[[], Any]] = {
    "device": lambda: Rnic(RnicConfig()),
    "board": lambda: SerialRnic(RnicConfig(), 50_000_000, 2_000_000),
    "narrow": lambda: Rnic(RnicConfig(data_width=32)),
    "wide": lambda: Rnic(RnicConfig(data_width=128)),
}
"""The device, the device behind a UART, and with ports of the other widths."""


def main() -> None:
    """Writes the modules of one design."""
    name, file = sys.argv[1:]
    Path(file).write_text(json.dumps(modules(export(DESIGNS[name](), name))))


if __name__ == "__main__":
    main()
