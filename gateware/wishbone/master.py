"""A Wishbone master that is asked in one clock and accesses in another one."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.wishbone.ports import ACCESS, OUTCOME, WishboneSignature

LIMIT_CYCLES = 1024
"""Cycles of `sync` that an access may take: 16 us at 62.5 MHz."""


class WishboneMaster(wiring.Component):
    """Makes one access at a time to a slave in the domain `wishbone`, and always says what came.

    `done` pulses with `outcome` once for each access that was taken, in their order; nobody can
    make it wait. The next access is taken the cycle after it at the earliest. With clocks of the
    same frequency and a slave that answers at once, that is 10 to 12 cycles after the access was
    taken; each cycle that the slave waits adds one. Whatever the clocks, accesses begin at least 6
    cycles of `wishbone` apart. What crosses are two levels, one each way,
    which return to 0 between accesses; what goes with them stands still meanwhile.

    A slave that does not answer, or whose clock stands still, costs `limit_cycles`: the outcome is
    `late` then. The slave still has the access, `cyc` and `stb` stay. Until it answers every other
    access is `late` at once and does not reach it; its late answer is dropped, and accesses
    go on. An `ack` or `err` that nobody waits for does nothing; `err` counts if both come.

    A reset of `sync` has to last 4 cycles of `wishbone` and 2 of its own. The access that is under
    way then is finished, or waits for ever, without an outcome; the next one comes after it. After
    a reset of `wishbone` alone an access that is under way is made from its beginning.

    Parameters
    ----------
    limit_cycles: of `sync`, that an access may take; 16 or more.

    Members
    -------
    access: what is asked. done: what became of it is in `outcome`.
    bus: to the slave, in the domain `wishbone`. Its outputs are registers.
    """

    def __init__(self, limit_cycles: int = LIMIT_CYCLES):
        if limit_cycles < 16:
            raise ValueError(
                f"WishboneMaster limit_cycles is {limit_cycles!r}; allowed: 16 and more"
            )
        self._limit_cycles = limit_cycles
        super().__init__(
            {
                "access": In(stream.Signature(ACCESS)),
                "done": Out(1),
                "outcome": Out(OUTCOME),
                "bus": Out(WishboneSignature()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request, wanted = Signal(), Signal()  # the level of `sync`, as it is and as it is seen
        answer, answered = Signal(), Signal()  # the level of `wishbone`
        m.submodules.wanted = FFSynchronizer(request, wanted, o_domain="wishbone")
        m.submodules.answered = FFSynchronizer(answer, answered)
        asked = Signal(ACCESS)
        found = Signal(data.StructLayout({"value": 32, "error": 1}))
        self._ask(m, request, answered, asked, found)
        self._make(m, wanted, answer, asked, found)
        return m

    def _ask(
        self, m: Module, request: Signal, answered: Signal, asked: Signal, found: Signal
    ) -> None:
        """The side of `sync`."""
        access, outcome = self.access, self.outcome
        got = Signal(found.shape())
        m.d.comb += [outcome.value.eq(got.value), outcome.error.eq(got.error)]
        left = Signal(range(self._limit_cycles))
        m.d.sync += left.eq(left - 1)

        def overdue() -> None:
            m.d.comb += [self.done.eq(1), outcome.late.eq(1)]
            m.next = "OVERDUE"

        with m.FSM():
            with m.State("ACCESS"):  # waits for an access
                m.d.comb += access.ready.eq(1)
                m.d.sync += left.eq(self._limit_cycles - 1)
                with m.If(access.valid):
                    m.d.sync += [asked.eq(access.payload), request.eq(1)]
                    m.next = "ANSWER"
            with m.State("ANSWER"):  # waits for what the slave says
                with m.If(answered):
                    m.d.sync += [request.eq(0), got.eq(found)]
                    m.next = "RETURN"
                with m.Elif(left == 0):
                    overdue()
            with m.State("RETURN"):  # waits until the other side has seen that
                with m.If(~answered):
                    m.d.comb += self.done.eq(1)
                    m.next = "ACCESS"
                with m.Elif(left == 0):
                    overdue()
            with m.State("OVERDUE"):  # waits for both after the limit
                with m.If(request & answered):
                    m.d.sync += request.eq(0)
                with m.If(~request & ~answered):
                    m.next = "ACCESS"
                with m.Else():
                    m.d.comb += [
                        access.ready.eq(1),
                        self.done.eq(access.valid),
                        outcome.late.eq(1),
                    ]

    def _make(
        self, m: Module, wanted: Signal, answer: Signal, asked: Signal, found: Signal
    ) -> None:
        """The side of `wishbone`."""
        bus = self.bus
        forgotten = Signal()  # a reset of `sync` has dropped the access
        m.d.comb += bus.stb.eq(bus.cyc)
        with m.FSM(domain="wishbone"):
            with m.State("REQUEST"):  # waits for an access
                m.d.wishbone += forgotten.eq(0)
                with m.If(wanted):
                    m.d.wishbone += [
                        bus.adr.eq(asked.word),
                        bus.dat_w.eq(asked.value),
                        bus.we.eq(asked.write),
                        bus.cyc.eq(1),
                    ]
                    m.next = "SLAVE"
            with m.State("SLAVE"):  # waits for the slave
                with m.If(~wanted):
                    m.d.wishbone += forgotten.eq(1)
                with m.If(bus.ack | bus.err):
                    m.d.wishbone += [
                        bus.cyc.eq(0),
                        found.value.eq(bus.dat_r),
                        found.error.eq(bus.err),
                    ]
                    with m.If(forgotten | ~wanted):
                        m.next = "REQUEST"
                    with m.Else():
                        m.d.wishbone += answer.eq(1)
                        m.next = "TAKEN"
            with m.State("TAKEN"):  # waits until the answer is taken
                with m.If(~wanted):
                    m.d.wishbone += answer.eq(0)
                    m.next = "REQUEST"
