"""An access to a register reaches the block of its address, whole and unchanged, and no other."""

from typing import Any

from amaranth.hdl import Cat, Signal, Value

from stagecoach.gateware.registers.split import RegisterSplit
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

BOUNDARY = 0x400

CHANNELS = {
    "aw": ("awaddr", "awprot"),
    "w": ("wdata", "wstrb"),
    "b": ("bresp",),
    "ar": ("araddr", "arprot"),
    "r": ("rdata", "rresp"),
}

MODULE = "stagecoach.gateware.registers.split"


def _stays(h: Harness, port: Any, channel: str) -> Value:
    """What a channel shows while valid and not ready stays (AMBA AXI4, A3.2.1)."""
    valid, ready = getattr(port, f"{channel}valid"), getattr(port, f"{channel}ready")
    shown = Cat(getattr(port, name) for name in CHANNELS[channel])
    return ~h.past(valid & ~ready) | (valid & (shown == h.past(shown)))


def _split(h: Harness) -> None:
    dut = RegisterSplit(BOUNDARY)
    inside = h.block(dut)
    bus, blocks = dut.bus, {"below": dut.below, "above": dut.above}
    for channel in ("aw", "w", "ar"):
        h.assume(_stays(h, bus, channel))
    for block in blocks.values():
        for channel in ("b", "r"):
            h.assume(_stays(h, block, channel))

    for answer, accesses, idle in (("b", ("aw", "w"), "WRITE"), ("r", ("ar",), "READ")):
        machine = "write" if answer == "b" else "read"
        waits = ~inside.in_state(idle, fsm=machine)
        # What the host has given, and whether the block has taken it.
        fields = [name for access in accesses for name in CHANNELS[access]]
        given = Cat(getattr(bus, name) for name in fields)
        address = getattr(bus, f"{accesses[0]}addr")
        kept, above = Signal.like(given, name=f"{machine}_kept"), Signal(name=f"{machine}_to")
        takes = getattr(bus, f"{accesses[0]}valid") & getattr(bus, f"{accesses[0]}ready")
        with h.m.If(takes):
            h.m.d.sync += [kept.eq(given), above.eq(address >= BOUNDARY)]
        h.invariant(f"{machine} to", ~waits | (above == inside.signal(f"{machine}_above")))
        h.check(f"{answer} held", _stays(h, bus, answer))
        for number, (name, block) in enumerate(blocks.items()):
            mine = above == number
            # A block answers what it has taken (AMBA AXI4, A3.3.1).
            not_taken = Cat(getattr(block, f"{access}valid") for access in accesses).any()
            h.assume(~getattr(block, f"{answer}valid") | ~not_taken)
            for access in accesses:
                valid = getattr(block, f"{access}valid")
                h.check(f"{name} {access} held", _stays(h, block, access))
                h.check(f"{name} {access} is for it", ~valid | (waits & mine))
            shown = Cat(getattr(block, field) for field in fields)
            h.check(f"{name} {machine} unchanged", ~waits | ~mine | (shown == kept))
            told = getattr(block, f"{answer}ready")
            h.check(f"{name} {answer} is of it", ~told | (waits & mine))
        passed = [
            getattr(block, f"{answer}valid") & (above == number)
            for number, block in enumerate(blocks.values())
        ]
        h.check(
            f"{answer} comes of one", getattr(bus, f"{answer}valid") == (waits & Cat(passed).any())
        )
        h.cover(f"{answer} of above", getattr(bus, f"{answer}valid") & above)
        h.cover(f"{answer} of below", getattr(bus, f"{answer}valid") & ~above)


PROPERTIES = (
    Property(
        block="registers.split.RegisterSplit",
        name="an access reaches the block of its address alone, and so does its answer",
        build=in_harness(_split),
        mutations=(
            Mutation(MODULE, "block.awvalid.eq(begins)", "block.awvalid.eq(1)"),
            Mutation(MODULE, "block.wdata.eq(bus.wdata)", "block.wdata.eq(bus.wdata + 1)"),
            Mutation(
                MODULE,
                "with m.If(block.wready):\n                m.d.sync += block.wvalid.eq(0)",
                "with m.If(block.awready):\n                m.d.sync += block.wvalid.eq(0)",
            ),
            Mutation(
                MODULE,
                "block.arvalid.eq((bus.araddr >= self._boundary) == number)",
                "block.arvalid.eq((bus.araddr > self._boundary) == number)",
            ),
            Mutation(MODULE, "with m.If(valid & ready):", "with m.If(ready):"),
        ),
        covered=6,
    ),
)
