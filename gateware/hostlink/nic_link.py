"""The host link of a NIC: registers, host memory, interrupts, and the board's memory."""

from amaranth.hdl import Module, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.gateware.hostlink.board_bridge import BoardBridge
from stagecoach.gateware.hostlink.link_core import LinkCore
from stagecoach.gateware.registers.ports import AxiLiteSignature
from stagecoach.hw.interface.hostlink import Kind

MEMORY_LOG2 = range(17, 49)
"""Of the bytes that a NIC's board may have: a ring of a connection has 128 KiB at least, and an
address of 48 bits at most."""


class NicLink(wiring.Component):
    """`LinkCore`, and accesses of the host to the memory of the NIC's board.

    Parameters
    ----------
    config, clock_hz, retry_cycles: see `LinkCore`.
    memory_log2: base 2 logarithm of the bytes of the board's memory, one of `MEMORY_LOG2`.

    Members
    -------
    i, o, registers, memory, restart: see `LinkCore`.
    irq: bit 0 is that of the RNIC, bit 1 that of the network.
    board: AXI4 to the board's memory, see `BoardBridge`.
    """

    def __init__(self, config: RnicConfig, clock_hz: int, retry_cycles: int, memory_log2: int):
        if memory_log2 not in MEMORY_LOG2:
            raise ValueError(
                f"memory_log2 is {memory_log2!r}; allowed: {MEMORY_LOG2[0]} to {MEMORY_LOG2[-1]}"
            )
        self._core = LinkCore(
            config,
            clock_hz,
            retry_cycles,
            events=0,
            memory_log2=memory_log2,
            irqs=2,
            kind=Kind.BOARD_ACCESS,
            sources=1,
        )
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "o": Out(stream.Signature(8)),
                "registers": Out(AxiLiteSignature()),
                "memory": In(AxiSignature()),
                "board": Out(AxiSignature()),
                "irq": In(2),
                "restart": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bridge = BoardBridge()
        m.submodules.core = core = self._core
        m.submodules.bridge = ResetInserter(core.restart)(bridge)
        for name in ("i", "memory"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(core, name))
        for name in ("o", "registers"):
            wiring.connect(m, getattr(core, name), wiring.flipped(getattr(self, name)))
        wiring.connect(m, core.data, bridge.i)
        wiring.connect(m, bridge.o, core.sources[0])
        wiring.connect(m, bridge.axi, wiring.flipped(self.board))
        m.d.comb += [
            core.irq.eq(self.irq),
            self.restart.eq(core.restart),
            core.message_ready.eq(1),  # not known here: ignored
            core.passed.eq(1),
        ]
        return m
