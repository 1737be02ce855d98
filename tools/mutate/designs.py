"""The devices whose netlists are compared, each as RTLIL by module; run in the changed copy.

`python -m tools.mutate.designs NAME FILE` writes one as JSON.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from stagecoach.hw.formal.device import DEVICES
from stagecoach.hw.rtlil import export
from tools.mutate.nearest import closure
from tools.mutate.netlist import modules

PACKAGE = "stagecoach."


def designs_of(file: str, graph: Mapping[str, set[str]]) -> list[str]:
    """Names of the devices that a file of the gateware is part of; that of the file itself first.

    graph: what `imports` returned.
    """
    found = {}
    for name, make in DEVICES.items():
        module = type(make()).__module__.removeprefix(PACKAGE)
        top = module.replace(".", "/") + ".py"
        if file in closure(graph, top):
            found[name] = top
    return sorted(found, key=lambda name: found[name] != file)


def main() -> None:
    """Writes the modules of one design."""
    name, file = sys.argv[1:]
    Path(file).write_text(json.dumps(modules(export(DEVICES[name](), "design"))))


if __name__ == "__main__":
    main()
