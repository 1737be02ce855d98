"""All ways to the board's own memory, and the one to that of the host."""

from amaranth.hdl import DomainRenamer, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from stagecoach.gateware.dma.axi import connect_axi
from stagecoach.gateware.dma.axi_arbiter import AxiReadArbiter, AxiWriteArbiter
from stagecoach.gateware.dma.axi_error_slave import AxiErrorSlave
from stagecoach.gateware.dma.axi_isolator import AxiIsolator
from stagecoach.gateware.dma.axi_router import AxiReadRouter, AxiWriteRouter
from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.hw.interface.device_memory import DEVICE_MEMORY_BASE

MASTERS = 3
ID_WIDTH = bits_for(MASTERS - 1)


class BoardMemoryPaths(wiring.Component):
    """Joins the masters of a board's device to the host's memory and to the board's own one.

    Addresses of `m_axi` below `DEVICE_MEMORY_BASE` are those of the host. From there on are those
    of the board's memory, which are those of `t_axi` and `h_axi` from 0 on. The three take turns at
    `memory` burst by burst. A burst that begins beyond the memory's end is answered with DECERR
    here; a burst crosses no boundary of 4 KiB, and so not the end.

    All up to `memory` is in the domain `device` and begins anew with the masters. `memory` does
    not: what was under way there is finished in their place (`AxiIsolator`), and until then their
    bursts wait, not their reset.

    A slow host holds up what the RNIC reads or writes after it asked the host, not the others; a
    memory that does not answer holds up all that go there, and nothing that goes to the host alone.
    A master that does not give its words holds up nobody: `AxiWriteArbiter` waits for all words of
    a burst. One that does not take its answers holds up all. The engines have room for them; the
    host link takes a word every 9 cycles (`BoardBridge`).

    To `memory` it takes a cycle for the arbiter (writes: two from the last word on), and one for
    the isolator; a word per cycle. Answers come in the same cycle.

    Parameters
    ----------
    memory_log2: base 2 logarithm of the memory's bytes, from 12 on.
    longest: beats of a written burst at most.

    Members
    -------
    m_axi: the RNIC. t_axi: the TCP engine. h_axi: the host.
    host: to the host's memory.
    memory: to the board's memory, from address 0 on, in the domain `sync`. Its IDs are the masters
        in that order; answers to all of them come in the order of their bursts, or to each of them.
        RREADY and BREADY depend on RID and BID in the same cycle.
    isolate: in the domain `sync`, while the domain `device` is reset.
    """

    def __init__(self, memory_log2: int, longest: int = 32):
        if not 12 <= memory_log2 <= 48:
            raise ValueError(f"BoardMemoryPaths memory_log2 is {memory_log2!r}; allowed: 12 to 48")
        self._end = 1 << memory_log2
        self._longest = longest
        port = AxiSignature()
        super().__init__(
            {
                **dict.fromkeys(("m_axi", "t_axi", "h_axi"), In(port)),
                "host": Out(port),
                "memory": Out(AxiSignature(id_width=ID_WIDTH)),
                "isolate": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def of_device(name: str, component: wiring.Component) -> None:
            m.submodules[name] = DomainRenamer("device")(component)

        read_side, write_side = (
            AxiReadRouter(DEVICE_MEMORY_BASE),
            AxiWriteRouter(DEVICE_MEMORY_BASE),
        )
        reads = AxiReadArbiter(masters=MASTERS)
        writes = AxiWriteArbiter(longest=self._longest, masters=MASTERS)
        read_range = AxiReadRouter(self._end, id_width=ID_WIDTH)
        write_range = AxiWriteRouter(self._end, id_width=ID_WIDTH)
        nothing = AxiErrorSlave(id_width=ID_WIDTH)
        of_device("read_side", read_side)
        of_device("write_side", write_side)
        of_device("reads", reads)
        of_device("writes", writes)
        of_device("read_range", read_range)
        of_device("write_range", write_range)
        of_device("nothing", nothing)
        m.submodules.isolator = isolator = AxiIsolator(id_width=ID_WIDTH)

        connect_axi(m, self.m_axi, read_side.axi, write_side.axi)
        connect_axi(m, self.host, read_side.below, write_side.below)
        connect_axi(m, reads.axi[0], read_side.above, except_for=["araddr"])
        connect_axi(m, writes.axi[0], write_side.above, except_for=["awaddr"])
        m.d.comb += [
            reads.axi[0].araddr.eq(read_side.above.araddr - DEVICE_MEMORY_BASE),
            writes.axi[0].awaddr.eq(write_side.above.awaddr - DEVICE_MEMORY_BASE),
            isolator.isolate.eq(self.isolate),
        ]
        for number, master in ((1, self.t_axi), (2, self.h_axi)):
            connect_axi(m, master, reads.axi[number], writes.axi[number])
        wiring.connect(m, reads.m_axi, read_range.axi)
        wiring.connect(m, writes.m_axi, write_range.axi)
        connect_axi(m, isolator.axi, read_range.below, write_range.below)
        connect_axi(m, nothing.axi, read_range.above, write_range.above)
        wiring.connect(m, isolator.m_axi, wiring.flipped(self.memory))
        return m
