"""Which items of a capture are shown."""

from collections.abc import Iterable
from dataclasses import dataclass

from stagecoach.sim.capture.decode import Item, SeenFpdu
from stagecoach.sim.model.rdmap import Opcode


@dataclass(frozen=True)
class Selection:
    """What an item has to be, all of it; nothing of it if all is left as it is.

    connections: numbers, from 1. opcodes: of FPDUs. problems: whether something is wrong with it.
    """

    connections: frozenset[int] = frozenset()
    opcodes: frozenset[Opcode] = frozenset()
    problems: bool = False

    def of(self, items: Iterable[Item]) -> list[Item]:
        """Those that are shown."""
        return [item for item in items if self._has(item)]

    def missing(self, items: Iterable[Item]) -> list[int]:
        """Connections that were asked for, and are not there."""
        return sorted(self.connections - {item.place.connection for item in items})

    def _has(self, item: Item) -> bool:
        if self.connections and item.place.connection not in self.connections:
            return False
        if self.problems and not item.problems:
            return False
        if not self.opcodes:
            return True
        return isinstance(item, SeenFpdu) and item.observation.opcode in self.opcodes
