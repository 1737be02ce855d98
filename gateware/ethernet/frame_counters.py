"""How many frames had which fate."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import FrameFate

_FATES = 1 << FrameFate.as_shape().width


class FrameCounters(wiring.Component):
    """Counts frames by fate, in LUT memory: one in each cycle, at most. Nothing waits.

    `value` is the count of the `fate_read` of the last cycle in which no frame ended: a frame is
    counted through the one port by which counts are read. Counts are modulo 2^32. After the reset
    they are cleared, one in a cycle; a frame that comes in these 32 cycles is not counted.

    Members
    -------
    valid, fate: a frame. fate_read, value: as said.
    """

    valid: In(1)
    fate: In(FrameFate)
    fate_read: In(FrameFate)
    value: Out(32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.counts = counts = memory.Memory(shape=32, depth=_FATES, init=[])
        write = counts.write_port()
        old = counts.read_port(domain="comb")
        clearing = Signal(init=1)
        m.d.comb += [
            old.addr.eq(Mux(self.valid, self.fate, self.fate_read)),
            write.addr.eq(self.fate),
            write.data.eq(old.data + 1),
            write.en.eq(self.valid),
        ]
        with m.If(~self.valid):
            m.d.sync += self.value.eq(old.data)
        cleared = Signal(range(_FATES))
        with m.If(clearing):
            m.d.comb += [write.addr.eq(cleared), write.data.eq(0), write.en.eq(1)]
            m.d.sync += [cleared.eq(cleared + 1), clearing.eq(cleared != _FATES - 1)]
        return m
