"""Which part of the FPDU store is free while FPDUs are released in any order."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.mpa.ports import StoreNumberPort

MARGIN_FPDUS = 16
"""Numbers kept free, so that `full` may be late: 8 FPDUs may be committed when it has risen."""

LOOK_CYCLES = 2
"""From the address of a row to what it says."""


class ReleaseOrder(wiring.Component):
    """Frees what stands before the oldest FPDU that is not released.

    Every committed FPDU has a number: one more than that of the FPDU before it, mod
    2^`store_number_bits`. It is released once, at any time after its commit, whatever became of
    those before it. All words before the oldest FPDU that is not released are free: `free_end` is
    the end of the one before it. It is updated five to seven cycles after a release that moves
    it; if later FPDUs were released earlier, one more is freed in each cycle.

    A release waits for nothing. One FPDU that is not released for long holds all that came after
    it: `full` rises when the numbers are used up, and the store is full when its words are; nothing
    is received then until that FPDU is released. Numbers wrap, and none is used again before it is
    free. A reset forgets all; some 20 cycles after it `full` falls.

    Members
    -------
    numbers: `StoreNumberPort`, seen from the store.
    release, released: In, a pulse, and the FPDU as its segment has it (`Layouts.stored`).
    free, free_end: Out, a pulse, and the word before which all are free from now on.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        super().__init__(
            {
                "numbers": In(StoreNumberPort(config)),
                "release": In(1),
                "released": In(Layouts(config).stored),
                "free": Out(1),
                "free_end": Out(config.store_address_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # What is known of each number: whether its FPDU was released, and where that ends.
        count = 1 << self._config.store_number_bits
        row_layout = data.StructLayout({"end": self._config.store_address_bits, "released": 1})
        # A row that was read while it was written is read again.
        m.submodules.rows = rows = memory.Memory(
            shape=row_layout, depth=count, init=[], attrs=NO_COLLISION
        )
        write, read = rows.write_port(), rows.read_port()

        # Numbers from `oldest` on stand in the store, up to `number`; rows are cleared ahead of
        # that, up to `clean`, while nothing is released.
        number, full = self.numbers.number, self.numbers.full
        oldest, clean, ahead = (Signal.like(number, name=n) for n in ("oldest", "clean", "ahead"))
        may_clean = Signal()
        cleans = Signal()
        m.d.comb += cleans.eq(may_clean & ~self.release)
        m.d.sync += [
            number.eq(number + self.numbers.commit),
            clean.eq(clean + cleans),
            # Two more may have been cleaned since, and the last one must not be.
            may_clean.eq((clean - oldest)[: len(number)] < count - 4),
            ahead.eq(clean - number),
            full.eq(ahead < MARGIN_FPDUS),
            write.en.eq(self.release | cleans),
            write.addr.eq(Mux(self.release, self.released.number, clean)),
            write.data.end.eq(self.released.end),
            write.data.released.eq(self.release),
        ]

        # Rows are read ahead, from that of the oldest number on, and again from there if it is not
        # released.
        look = Signal.like(number)
        looked = Signal(LOOK_CYCLES)  # a row was read one, two cycles ago
        clashed = Signal(LOOK_CYCLES)  # and written then
        row = Signal(row_layout)
        stands = Signal()  # an FPDU
        goes = Signal()
        m.d.comb += [read.addr.eq(look), goes.eq(looked[-1] & ~clashed[-1] & row.released)]
        m.d.sync += [
            stands.eq(number != oldest),
            look.eq(look + stands),
            looked.eq(Cat(stands, looked)),
            clashed.eq(Cat(write.en & (write.addr == look), clashed)),
            row.eq(read.data),
            oldest.eq(oldest + goes),
            self.free.eq(goes),
            self.free_end.eq(row.end),
        ]
        with m.If(looked[-1] & ~goes):
            m.d.sync += [looked.eq(0), look.eq(oldest)]
        return m
