"""The routers: bursts, words and answers go between the master and the slave with the address.

Of the master it is assumed that AR, AW and W stay until they are taken (AMBA AXI4, A3.2.1), of the
slaves that R and B do, and that they answer only what they have taken (A3.3.1). Bursts are under
way on one side at a time, so answers are in the order of the bursts if those of each slave are.
"""

from typing import Any

from amaranth.hdl import Cat, Signal

from stagecoach.gateware.dma.axi import channel_payload
from stagecoach.gateware.dma.axi_router import AxiReadRouter, AxiWriteRouter
from stagecoach.hw.formal.axi import counted, moves, stays, valid
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.property import Mutation, Property, in_harness
from stagecoach.hw.interface.device_memory import DEVICE_MEMORY_BASE

MODULE = "stagecoach.gateware.dma.axi_router"

COUNT_BITS = 9


def _request(h: Harness, channel: str, axi: Any, slave: Any, its: Any) -> None:
    """A slave is shown what the master shows, if it is its own, and takes it with the master."""
    same = channel_payload(slave, channel) == channel_payload(axi, channel)
    h.check(f"{channel} is its", ~valid(slave, channel) | (valid(axi, channel) & its & same))
    h.check(f"{channel} is taken", moves(slave, channel) == (moves(axi, channel) & its))
    h.check(f"{channel} held", stays(h, slave, channel))


def _answer(h: Harness, channel: str, axi: Any, slave: Any, its: Any) -> None:
    """While a slave has bursts under way, the master is shown its answers."""
    same = channel_payload(slave, channel) == channel_payload(axi, channel)
    h.check(f"{channel} passes", ~its | (valid(axi, channel) == valid(slave, channel)))
    h.check(f"{channel} is of it", ~its | ~valid(axi, channel) | same)
    h.check(f"{channel} is taken", moves(slave, channel) == (moves(axi, channel) & its))
    h.assume(stays(h, slave, channel))


def _one_side(h: Harness, turn: Inside, under_way: Any, most: int) -> None:
    below, above = under_way
    h.check("one side at a time", (below == 0) | (above == 0))
    h.check("not too many", (below <= most) & (above <= most))
    h.invariant("under way", turn.signal("under_way") == below + above)
    h.invariant("side", ((below == 0) | ~turn.ports.above) & ((above == 0) | turn.ports.above))


def _reads(h: Harness) -> None:
    dut = AxiReadRouter(DEVICE_MEMORY_BASE)
    turn = h.block(dut).child("turn")
    axi, slaves = dut.axi, (dut.below, dut.above)
    to_above = axi.araddr >= DEVICE_MEMORY_BASE
    h.assume(stays(h, axi, "ar"))
    under_way = [
        counted(h, f"reads_{number}", COUNT_BITS, moves(each, "ar"), moves(each, "r") & each.rlast)
        for number, each in enumerate(slaves)
    ]
    most = turn.ports._bursts
    _one_side(h, turn, under_way, most)
    for number, slave in enumerate(slaves):
        mine, its = to_above == number, under_way[number]
        h.assume(~slave.rvalid | (its != 0))
        _request(h, "ar", axi, slave, mine)
        _answer(h, "r", axi, slave, its != 0)
        free = (under_way[1 - number] == 0) & (its != most)
        h.check("ar waits for the other side alone", ~(axi.arvalid & mine & free) | slave.arvalid)
    h.check("r held", stays(h, axi, "r"))
    h.check("r is an answer", ~axi.rvalid | (Cat(under_way) != 0))
    _cover_change(h, moves(slaves[0], "r"), moves(slaves[1], "r"))


def _writes(h: Harness) -> None:
    dut = AxiWriteRouter(DEVICE_MEMORY_BASE)
    inside = h.block(dut)
    turn = inside.child("turn")
    axi, slaves = dut.axi, (dut.below, dut.above)
    to_above = axi.awaddr >= DEVICE_MEMORY_BASE
    for channel in ("aw", "w"):
        h.assume(stays(h, axi, channel))
    # The address that waits was offered before.
    told = Signal(name="told")
    h.m.d.sync += told.eq((told | Cat(each.awvalid for each in slaves).any()) & ~moves(axi, "aw"))
    h.invariant("told", inside.signal("noted") == told)
    h.invariant("told waits", ~told | h.past(axi.awvalid & ~axi.awready))

    def tally(name: str, number: int, up: Any, down: Any) -> Signal:
        return counted(h, f"{name}_{number}", COUNT_BITS, up, down)

    ends = [moves(each, "b") for each in slaves]
    offers = [each.awvalid & ~told for each in slaves]
    words = [moves(each, "w") & each.wlast for each in slaves]
    under_way = [tally("under_way", n, offers[n], ends[n]) for n in range(2)]
    due = [tally("due", n, offers[n], words[n]) for n in range(2)]
    taken = [tally("taken", n, moves(slaves[n], "aw"), ends[n]) for n in range(2)]
    written = [tally("written", n, words[n], ends[n]) for n in range(2)]
    most = turn.ports._bursts
    _one_side(h, turn, under_way, most)
    h.invariant("owed", inside.signal("owed") == due[0] + due[1])
    for number, slave in enumerate(slaves):
        mine, its = to_above == number, under_way[number]
        h.assume(~slave.bvalid | ((taken[number] != 0) & (written[number] != 0)))
        h.invariant("taken", its == taken[number] + (told & mine))
        h.invariant("written", its == due[number] + written[number])
        _request(h, "aw", axi, slave, mine)
        _request(h, "w", axi, slave, due[number] != 0)
        _answer(h, "b", axi, slave, its != 0)
        free = (under_way[1 - number] == 0) & (told | (its != most))
        h.check("aw waits for the other side alone", ~(axi.awvalid & mine & free) | slave.awvalid)
        goes = axi.wvalid & (due[number] != 0)
        h.check("w waits for its address alone", ~goes | slave.wvalid)
    h.check("b held", stays(h, axi, "b"))
    h.check("b is an answer", ~axi.bvalid | (Cat(under_way) != 0))
    _cover_change(h, *ends)


def _cover_change(h: Harness, below: Any, above: Any) -> None:
    """Each side answers after the other one."""
    answered = Signal(2, name="answered")
    h.m.d.sync += answered.eq(answered | Cat(below, above))
    h.cover("above after below", above & (answered == 0b01))
    h.cover("below after above", below & (answered == 0b10))


def _property(block: str, name: str, build: Any, *changes: tuple[str, str]) -> Property:
    return Property(
        f"dma.axi_router.{block}",
        name,
        in_harness(build),
        mutations=tuple(Mutation(MODULE, *change) for change in changes),
        covered=8,
    )


PROPERTIES = (
    _property(
        "AxiReadRouter",
        "a burst goes to the slave of its address, once none is under way at the other one; its "
        "answer is that of this slave",
        _reads,
        ("self.above == self.to_above", "1"),
        ("slave.arvalid.eq(axi.arvalid & turn.may & offered)", "slave.arvalid.eq(axi.arvalid)"),
        ("axi.arready.eq(turn.may & Mux", "axi.arready.eq(Mux"),
        ("axi.rready & axi.rlast", "axi.rready"),
        ("self.may.eq((under_way == 0) | ", "self.may.eq("),
    ),
    _property(
        "AxiWriteRouter",
        "a burst goes to the slave of its address, once none is under way at the other one, its "
        "words with it; its answer is that of this slave",
        _writes,
        ("turn.may & ~noted", "turn.may"),
        ("due.eq(owed != 0)", "due.eq(1)"),
        ("slave.wvalid.eq(axi.wvalid & due & has_bursts)", "slave.wvalid.eq(axi.wvalid & due)"),
        ("axi.wready & axi.wlast", "axi.wready"),
        ("noted.eq(~axi.awready)", "noted.eq(0)"),
    ),
)
