"""The crossing: each channel goes through a FIFO of its own, whole, and waits for nothing else.

The FIFOs are those of Amaranth's library, and of two clocks: that they keep the order is not proved
but tested, in tests/dma/test_axi_crossing.py.
"""

from typing import Any

from stagecoach.gateware.dma.axi import channel_payload
from stagecoach.gateware.dma.axi_crossing import AxiCrossing
from stagecoach.hw.formal.axi import valid
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

MODULE = "stagecoach.gateware.dma.axi_crossing"


def _crossing(h: Harness) -> None:
    dut = AxiCrossing()
    inside = h.block(dut)
    ports = dict.fromkeys(("aw", "w", "ar"), (dut.axi, dut.m_axi))
    ports |= dict.fromkeys(("b", "r"), (dut.m_axi, dut.axi))
    for channel, (giver, taker) in ports.items():
        fifo: Any = h.free_fifo(inside, channel)
        h.check(f"{channel} goes in", fifo.w_en == valid(giver, channel))
        h.check(f"{channel} as it is", fifo.w_data == channel_payload(giver, channel))
        h.check(f"{channel} is taken", getattr(giver, f"{channel}ready") == fifo.w_rdy)
        h.check(f"{channel} is offered", valid(taker, channel) == fifo.r_rdy)
        h.check(f"{channel} as it came", channel_payload(taker, channel) == fifo.r_data)
        h.check(f"{channel} leaves", fifo.r_en == getattr(taker, f"{channel}ready"))
        h.cover(f"{channel} goes", fifo.w_en & fifo.r_en)


PROPERTIES = (
    Property(
        "dma.axi_crossing.AxiCrossing",
        "each channel goes into its FIFO as it is and comes out of it; none waits for another one",
        in_harness(_crossing),
        mutations=(
            Mutation(MODULE, 'fifo.r_en.eq(getattr(taker, f"{channel}ready"))', "fifo.r_en.eq(1)"),
            Mutation(MODULE, "fifo.w_data.eq(payload)", "fifo.w_data.eq(payload | 1)"),
            Mutation(MODULE, ".eq(fifo.w_rdy)", ".eq(1)"),
        ),
        covered=3,
    ),
)
