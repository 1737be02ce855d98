"""Commands of clients of the DMA engines: 1 to 65,535 bytes, and those of `whole` in a block.

The engines are proved with what is shown here of the blocks that drive them (`axi`).
"""

from typing import Any

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.gather import Gather
from stagecoach.gateware.dma.placer import Placer
from stagecoach.gateware.queues.prefetch_memory import UNIT_OCTETS
from stagecoach.gateware.queues.ring_fetcher import RingFetcher
from stagecoach.gateware.queues.ring_writer import RingWriter
from stagecoach.gateware.rdmap.atomic.unit import AtomicUnit
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.properties.axi import BEATS, CONFIG, command_has_octets, whole_in_block
from stagecoach.hw.formal.properties.streams import FREE
from stagecoach.hw.formal.property import Mutation, Property, in_harness
from stagecoach.hw.interface.queue_entries import SEND_ENTRY_OCTETS


def _placer(h: Harness) -> None:
    placer = Placer(CONFIG)
    inside = h.block(placer)
    command, placement = placer.write.command, placer.placement
    h.assume(~placement.valid | (placement.p.octets <= 65535))
    h.invariant("command free", inside.signal("command_free") == ~command.valid)
    h.check("1 to 65535 bytes", command_has_octets(command))
    h.cover("most", command.valid & (command.p.octets == 65535))


def _gather(h: Harness) -> None:
    gather = Gather(CONFIG)
    inside = h.block(gather)
    piece, command = gather.piece, gather.read.command

    def good(octets: Any) -> Any:
        return (octets != 0) & (octets <= 65535)

    h.assume(~piece.valid | piece.p.inline | good(piece.p.octets))
    held = inside.view("held", piece.p.shape())
    measured = inside.view("measured", inside.child("pieces").ports.o.p.shape())
    h.invariant("held", ~inside.signal("held_valid") | held.inline | good(held.octets))
    known = inside.signal("measured_valid")
    h.invariant("measured", ~known | measured.inline | good(command.p.octets))
    h.check("1 to 65535 bytes", command_has_octets(command))
    h.cover("most", command.valid & (command.p.octets == 65535))


def _ring_fetcher(h: Harness) -> None:
    fetcher = RingFetcher(
        CONFIG,
        entry_units=SEND_ENTRY_OCTETS // UNIT_OCTETS,
        own_units=CONFIG.send_units,
        send=True,
        outstanding=64,
    )
    inside = h.block(fetcher)
    for name in FREE["queues.ring_fetcher.RingFetcher"]:
        h.free_part(inside, name)
    h.check("1 to 65535 bytes", command_has_octets(fetcher.read.command))
    h.cover("a unit", fetcher.read.command.valid)


def _ring_writer(h: Harness) -> None:
    writer = RingWriter(RnicConfig(qps=2, cqs=2))
    inside = h.block(writer)
    command = inside.child("writer").ports.write.command
    h.invariant("aligned", command.p.address[:5] == 0)
    h.check("in a block", whole_in_block(writer.write.command, BEATS))
    h.cover("command", writer.write.command.valid)


def _atomic_unit(h: Harness) -> None:
    unit = AtomicUnit(RnicConfig(qps=2), operations=2)
    h.block(unit)
    h.check("in a block", whole_in_block(unit.write.command, BEATS))
    h.check("1 to 65535 bytes", command_has_octets(unit.read.command))
    h.cover("read", unit.read.command.valid)


def _property(
    block: str, build: Any, *mutations: tuple[str, str, str], depth: int = 1, covered: int = 8
) -> Property:
    return Property(
        block,
        "commands for host memory have 1 to 65,535 bytes, and those of one burst stay in a block",
        in_harness(build),
        mutations=tuple(
            Mutation(f"stagecoach.gateware.{module}", old, new) for module, old, new in mutations
        ),
        depth=depth,
        reached=covered,
    )


PROPERTIES = (
    _property(
        "dma.placer.Placer",
        _placer,
        ("dma.placer", "[command.valid.eq(~empty), ", "[command.valid.eq(1), "),
    ),
    _property(
        "dma.gather.Gather",
        _gather,
        ("dma.gather", "pieces.ready & ~measured.inline)", "pieces.ready)"),
    ),
    _property(
        "queues.ring_fetcher.RingFetcher",
        _ring_fetcher,
        ("queues.fetch.plan", "self.read.valid.eq(self.units != 0)", "self.read.valid.eq(1)"),
    ),
    _property(
        "queues.ring_writer.RingWriter",
        _ring_writer,
        ("queues.ring_writer", "Cat(Const(0, ENTRY_BITS), address)", "address"),
        (
            "queues.entry_writer",
            "command.payload.octets.eq(ENTRY_OCTETS)",
            "command.payload.octets.eq(0)",
        ),
    ),
    _property(
        "rdmap.atomic.unit.AtomicUnit",
        _atomic_unit,
        (
            "rdmap.atomic.compute",
            "command.p.address.eq(Cat(Const(0, WORD_BITS), address))",
            "command.p.address.eq(address)",
        ),
    ),
)
