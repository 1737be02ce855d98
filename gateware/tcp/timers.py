"""Deadlines of connections: which one is the earliest, and who is told when it has come."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.stream.prompt_fifo import PromptFifo
from stagecoach.gateware.tcp.layouts import DEADLINE, DEADLINES, due_layout
from stagecoach.gateware.tcp.sequence import before

DUES = 8
"""That wait to be taken."""

DUES_MARGIN = 4
"""Of them, rows on their way that the FIFO's level does not show yet."""


class Timers(wiring.Component):
    """Tells each connection of which a deadline has come, and keeps the earliest of the others.

    When the earliest deadline that was set has come, all connections are looked at once, and those
    are told of which one has. A deadline that is told stays as it is: it is told again by each
    sweep until it is set anew, and one that was set anew may be told once more. Who takes `due`
    knows the deadlines, and sets them. While none comes nothing moves.

    A sweep takes a cycle for each connection, and one more for each `write`. It begins 2 cycles
    after the time came, or 7 after a deadline was set that had come before; what is due is told 4
    cycles after its row was looked at; the next sweep begins 8 cycles after the last row at the
    earliest. A deadline that comes while a sweep is under way is told by that or by the next one.
    While `due` is not taken, the sweep waits, `write` does not.

    Times are compared modulo 2^32. A deadline is less than 2^30 microseconds ahead (18 minutes)
    when it is set, and is set anew less than 2^30 after it came: so much may `time` jump, if one is
    set. It does not matter how long none is.

    After a reset all deadlines are forgotten: none may be set for as many cycles as there are
    connections.

    Parameters
    ----------
    connections: 2 to 256.

    Members
    -------
    time: microseconds. write, connection, deadlines: a pulse, in any cycle: those of a connection
        are set.
    due: connections, and which deadline has come. earliest: no deadline that waits comes before it;
        the one that has come, while a sweep looks for the next.
    """

    def __init__(self, connections: int = 64):
        if not 2 <= connections <= 256:
            raise ValueError(f"Timers connections is {connections!r}; allowed: 2 to 256")
        self._connections = connections
        self._bits = bits = (connections - 1).bit_length()
        super().__init__(
            {
                "time": In(32),
                "write": In(1),
                "connection": In(bits),
                "deadlines": In(DEADLINES),
                "due": Out(stream.Signature(due_layout(bits))),
                "earliest": Out(DEADLINE),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # No row is looked at while one is written.
        m.submodules.table = table = memory.Memory(
            shape=DEADLINES, depth=self._connections, init=[], attrs=NO_COLLISION
        )
        m.submodules.dues = dues = PromptFifo(due_layout(self._bits), DUES)
        wiring.connect(m, wiring.flipped(self.due), dues.o)
        read, write = table.read_port(), table.write_port()

        # Rows that are looked at: of the sweep, and what was written, which counts as well.
        row = Signal(range(self._connections))
        step, stepped = Signal(), Signal()  # a row of the sweep is fetched, is at the memory's port
        written, wrote = Signal(DEADLINES), Signal()
        looked, looks, sweeps = Signal(DEADLINES), Signal(), Signal()
        number, looked_number = Signal(self._bits), Signal(self._bits)
        last = row == self._connections - 1
        m.d.comb += [
            read.addr.eq(row),
            write.addr.eq(self.connection),
            write.data.eq(self.deadlines),
            write.en.eq(self.write),
        ]
        m.d.sync += [
            stepped.eq(step),
            number.eq(row),
            written.eq(self.deadlines),
            wrote.eq(self.write),
            looks.eq(stepped | wrote),
            sweeps.eq(stepped),
            looked.eq(Mux(wrote, written, read.data)),
            looked_number.eq(number),
        ]

        # What has come of them, and the earlier one of the rest. What was written is looked at when
        # the sweep comes by, or by the next one.
        came = Signal(due_layout(self._bits))
        waits = {}
        nearest = Signal(DEADLINE)
        for name in DEADLINES.members:
            deadline = looked[name]
            has_come = Signal(name=f"{name}_has_come")
            m.d.comb += has_come.eq(sweeps & deadline.armed & ~before(self.time, deadline.at))
            m.d.sync += came[name].eq(has_come)
            waits[name] = looks & deadline.armed & ~has_come
        first = ~waits["acknowledge"] | before(looked.resend.at, looked.acknowledge.at)
        m.d.sync += [
            came.connection.eq(looked_number),
            nearest.armed.eq(waits["resend"] | waits["acknowledge"]),
            nearest.at.eq(Mux(waits["resend"] & first, looked.resend.at, looked.acknowledge.at)),
        ]
        m.d.comb += [
            dues.i.valid.eq(came.resend | came.acknowledge),
            dues.i.payload.eq(came),
        ]

        # The earliest one of those that were looked at since the sweep began.
        found = Signal(DEADLINE)
        sweeping = Signal()
        begins = Signal()
        with m.If(begins):
            m.d.sync += found.armed.eq(0)
        with m.Elif(nearest.armed & (~found.armed | before(nearest.at, found.at))):
            m.d.sync += found.eq(nearest)
        with m.If(~sweeping):
            m.d.sync += self.earliest.eq(found)
        reached = Signal()
        m.d.sync += reached.eq(self.earliest.armed & ~before(self.time, self.earliest.at))

        settling = Signal(range(4))  # cycles since the last row
        with m.FSM(init="FORGET"):
            with m.State("FORGET"):  # all deadlines
                m.d.comb += [write.addr.eq(row), write.data.eq(0), write.en.eq(1)]
                m.d.sync += row.eq(Mux(last, 0, row + 1))
                with m.If(last):
                    m.next = "REST"
            with m.State("REST"):  # until the earliest deadline comes
                with m.If(reached):
                    # What was written before is in the table, and needs not be remembered.
                    m.d.comb += begins.eq(1)
                    m.d.sync += sweeping.eq(1)
                    m.next = "SWEEP"
            with m.State("SWEEP"):  # over all rows
                m.d.comb += step.eq(~self.write & (dues.level < DUES - DUES_MARGIN))
                with m.If(step):
                    m.d.sync += row.eq(Mux(last, 0, row + 1))
                    with m.If(last):
                        m.next = "SETTLE"
            with m.State("SETTLE"):  # until the last row has counted
                m.d.sync += settling.eq(settling + 1)
                with m.If(settling == 3):
                    m.d.sync += sweeping.eq(0)
                    m.next = "SHOW"
            with m.State("SHOW"):  # what was found
                m.next = "COMPARE"
            with m.State("COMPARE"):  # it with the time
                m.next = "REST"
        return m
