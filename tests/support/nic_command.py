"""`stagecoach` whose NICs with the engine in gateware are the compiled NIC that tests share.

`python -m tests.support.nic_command` takes the arguments of `stagecoach`. What it patches is there
in processes that it spawns, too: they import this module again.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stagecoach.cli.demo import command as demo
from stagecoach.cli.main import main
from stagecoach.host_driver import locate
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.wire.address import parse_wire
from tests.support.compiled_nic import NIC_CONFIG, nic_library


class SharedNic(SimulatedNic):
    """That NIC; with the reference TCP in its address, a `SimulatedNic` as it is."""

    def __init__(
        self, address: str, *, library: Path | Callable[..., Path] | None = None, **options: Any
    ):
        if parse_wire(address).tcp == "engine":
            super().__init__(address, NIC_CONFIG, library=nic_library(), **options)
        else:
            super().__init__(address, library=library, **options)


_entry_points = locate.entry_points


def entry_points(**of: str) -> Any:
    """Those of the installation, but for the NIC."""
    if of["name"] == locate.NETWORK_CARD:
        return [SimpleNamespace(load=lambda: SharedNic)]
    return _entry_points(**of)


locate.entry_points = entry_points  # type: ignore[assignment]
demo.build_nic = lambda **_: nic_library()  # type: ignore[assignment]

if __name__ == "__main__":
    sys.exit(main())
