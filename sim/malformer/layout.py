"""The memory that a lane's QP has around it: regions which its peer may reach, or may not."""

import random
from dataclasses import dataclass

from stagecoach.sim.model.memory import TAGGED_OFFSET_SPAN, Rights
from stagecoach.sim.model.predict import Region, Scope

LANES = 24
"""QPs under test of one device at a time."""

SLOTS_PER_LANE = 16
_SLOT_BITS = 10  # of the index, in a table of 1024 STags
_KEY_BITS = 8
OWN_PD, OTHER_PD = 0, 1

REMOTE = Rights.REMOTE_READ | Rights.REMOTE_WRITE


@dataclass(frozen=True)
class Place:
    """A region of a lane: its name, its STag, its first Tagged Offset, who may do what with it."""

    name: str
    stag: int
    base: int
    size: int
    rights: Rights
    scope: Scope = Scope.ALL
    pd: int = OWN_PD

    @property
    def end(self) -> int:
        """The Tagged Offset after the last byte."""
        return self.base + self.size

    def region(self, octets: bytes) -> Region:
        """The same for the reference model; only an STag of one stream can be invalidated."""
        shared = self.scope is Scope.ALL
        return Region(self.stag, octets, self.base, self.rights, self.pd, self.scope, shared)


@dataclass(frozen=True)
class Layout:
    """The regions of one lane by name, the same for every stream of it.

    `own` belongs to the QP of a stream, and exists only in streams that say so.
    """

    lane: int
    places: dict[str, Place]
    contents: dict[str, bytes]

    def __getitem__(self, name: str) -> Place:
        return self.places[name]


# Size, rights, scope, PD.
_SHAPES: dict[str, tuple[int, Rights, Scope, int]] = {
    "main": (3000, Rights.ALL, Scope.ALL, OWN_PD),
    "large": (70_000, REMOTE, Scope.ALL, OWN_PD),
    "source": (3000, Rights.REMOTE_READ, Scope.ALL, OWN_PD),
    "write only": (300, Rights.REMOTE_WRITE, Scope.ALL, OWN_PD),
    "local": (300, Rights.LOCAL_WRITE, Scope.ALL, OWN_PD),
    "sink": (2000, Rights.LOCAL_WRITE, Scope.ALL, OWN_PD),
    "high": (300, Rights.ALL, Scope.ALL, OWN_PD),
    "other PD": (300, Rights.ALL, Scope.ALL, OTHER_PD),
    "other stream": (300, Rights.ALL, Scope.OTHER, OWN_PD),
    "own": (300, Rights.ALL, Scope.THIS, OWN_PD),
}


def make_layout(seed: int, lane: int) -> Layout:
    """The regions of a lane: STags whose slots no other lane has, Tagged Offsets of all kinds."""
    rng = random.Random(f"layout {seed} {lane}")
    places, contents = {}, {}
    for number, (name, (size, rights, scope, pd)) in enumerate(_SHAPES.items()):
        slot = lane * SLOTS_PER_LANE + number
        index = rng.getrandbits(24 - _SLOT_BITS) << _SLOT_BITS | slot
        stag = index << _KEY_BITS | rng.getrandbits(_KEY_BITS)
        size -= rng.randrange(16)
        # Regions that begin at 0, that lie across the limits of 32 and 63 bits, and any.
        base = rng.choice(
            [0, 2**32 - size // 2, 2**63 - size // 2, rng.getrandbits(48), rng.getrandbits(63)]
        )
        if name == "high":
            base = TAGGED_OFFSET_SPAN - 1 - size  # a range up to 2^64 wraps
        places[name] = Place(name, stag, base, size, rights, scope, pd)
        contents[name] = rng.randbytes(size)
    return Layout(lane, places, contents)


def free_stag(number: int) -> int:
    """An STag whose slot no region of a lane has; each number up to 100 has its own."""
    return (LANES * SLOTS_PER_LANE + number) << _KEY_BITS
