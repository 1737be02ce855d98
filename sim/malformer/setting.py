"""What the device's end of a stream is like before the first byte comes."""

import random
from dataclasses import dataclass

from stagecoach.sim.malformer.layout import OWN_PD, Layout
from stagecoach.sim.model import mpa
from stagecoach.sim.model.extensions import Extensions
from stagecoach.sim.model.predict import State
from stagecoach.sim.model.rdmap import ReadRequest

IRD_MAX = 8
EMSS = (256, 536, 1460, 9000)


@dataclass(frozen=True)
class Setting:
    """What the checks of the receiver depend on, besides the regions of the lane.

    Attributes
    ----------
    receives: element lengths of every receive that is posted.
    reads: the RDMA Reads of the device that are outstanding, as offset in `sink` and bytes.
    own: whether the region `own` exists. rfc7306: whether its messages are taken.
    half_close: the peer closes its half at once, not only when it has all answers.
    pieces: in how many the bytes are sent.
    """

    initiator: bool = True
    crc: bool = True
    markers_in: bool = False
    markers_out: bool = False
    ird: int = IRD_MAX
    emss: int = 1460
    receives: tuple[tuple[int, ...], ...] = ()
    reads: tuple[tuple[int, int], ...] = ()
    own: bool = False
    rfc7306: bool = True
    half_close: bool = False
    pieces: int = 1

    def names(self, layout: Layout) -> list[str]:
        """The regions that exist."""
        return [name for name in layout.places if name != "own" or self.own]

    def read_requests(self, layout: Layout) -> tuple[ReadRequest, ...]:
        """The Read Requests that the device has sent: what they read does not matter."""
        sink = layout["sink"]
        return tuple(
            ReadRequest(sink.stag, sink.base + offset, octets, 1, 0)
            for offset, octets in self.reads
        )

    def state(self, layout: Layout) -> State:
        """The same for the reference model."""
        return State(
            regions=tuple(
                layout[name].region(layout.contents[name]) for name in self.names(layout)
            ),
            receives=tuple(map(sum, self.receives)),
            reads=self.read_requests(layout),
            pd=OWN_PD,
            ird=self.ird,
            crc=self.crc,
            markers=self.markers_in,
            responder=not self.initiator,
            started=self.initiator,
            extensions=Extensions() if self.rfc7306 else None,
            mulpdu=mpa.mulpdu(self.emss, self.markers_out),
        )


def make_setting(rng: random.Random, layout: Layout) -> Setting:
    """Any setting."""
    initiator = rng.random() < 0.7
    receives = []
    for _ in range(rng.choice([0, 1, 2, 2, 3, 4])):
        count = rng.choice([0, 1, 1, 1, 2, 3, 4])
        longest = rng.choice([8, 100, 100, 600])
        receives.append(tuple(rng.randrange(longest + 1) for _ in range(count)))
    reads = []
    # A responder may not send them before the peer has sent something.
    if initiator and rng.random() < 0.35:
        for _ in range(rng.choice([1, 1, 2, 3])):
            octets = rng.choice([0, 1, rng.randrange(100), rng.randrange(1500)])
            reads.append((rng.randrange(layout["sink"].size - octets), octets))
    return Setting(
        initiator=initiator,
        crc=rng.random() < 0.8,
        markers_in=rng.random() < 0.3,
        markers_out=rng.random() < 0.3,
        ird=rng.choice([1, 2, IRD_MAX, IRD_MAX]),
        emss=rng.choice(EMSS),
        receives=tuple(receives),
        reads=tuple(reads),
        own=rng.random() < 0.3,
        rfc7306=rng.random() < 0.8,
        half_close=rng.random() < 0.3,
        pieces=rng.choice([1, 1, 1, 2, 3]),
    )
