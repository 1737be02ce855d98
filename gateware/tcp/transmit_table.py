"""What the sending side knows of all connections, and the copies of it that others have."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.tcp.layouts import DEADLINES, LIMITS, TABLE_ROW_BITS
from stagecoach.gateware.tcp.transmit_state import TRANSMIT_STATE

ROWS = len(TRANSMIT_STATE.members)
"""Of a connection."""


class TransmitTable(wiring.Component):
    """Gives the state of a connection row by row, and takes it all at once.

    `fetches` for a cycle; in each of the next four `loads` says which part of the state is in
    `word`; the connection stays until then. `holds` as long as `state` is that of the connection.
    `keeps` for a cycle, the last one of that: rows are written in the four after it, so the state
    stays from then on until the next one is loaded, which takes so long. Another fetch may begin
    two cycles after `keeps`: each row is written a cycle before it is read. Deadlines are written
    in the second cycle after `keeps`, and may change until then.

    After a reset all connections are forgotten, a cycle for each one; then `ready` rises.

    Parameters
    ----------
    connections: 2 to 256.

    Members
    -------
    connection, fetches, keeps, holds, state: as said. ready, loads, word: as said.
    limits_write, limits_connection, limits, deadlines_write, deadlines_connection, deadlines: as
        those of `TransmitProcessor`.
    """

    def __init__(self, connections: int):
        self._connections = connections
        bits = (connections - 1).bit_length()
        super().__init__(
            {
                "connection": In(bits),
                "fetches": In(1),
                "keeps": In(1),
                "holds": In(1),
                "state": In(TRANSMIT_STATE),
                "ready": Out(1),
                "loads": Out(ROWS),
                "word": Out(TABLE_ROW_BITS),
                "limits_write": Out(1),
                "limits_connection": Out(bits),
                "limits": Out(LIMITS),
                "deadlines_write": Out(1),
                "deadlines_connection": Out(bits),
                "deadlines": Out(DEADLINES),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.rows = rows = memory.Memory(
            shape=TABLE_ROW_BITS, depth=ROWS * self._connections, init=[], attrs=NO_COLLISION
        )
        read, write = rows.read_port(), rows.write_port()

        # A row is there in the cycle after its address.
        row, written = Signal(range(ROWS)), Signal.like(self.connection)
        writes = Signal(ROWS)
        address = Signal.like(row)
        for place in range(ROWS - 1):
            with m.If(self.loads[place]):
                m.d.comb += address.eq(place + 1)
        m.d.comb += [read.addr.eq(Cat(address, self.connection)), self.word.eq(read.data)]
        m.d.sync += self.loads.eq(Cat(self.fetches, self.loads))

        m.d.comb += [
            write.addr.eq(Cat(row, written)),
            write.en.eq(writes.any() | ~self.ready),
        ]
        m.d.sync += writes.eq(Cat(self.keeps, writes))
        with m.If(~self.ready):  # the row of their flags
            m.d.sync += [
                written.eq(written + 1),
                self.ready.eq(written == self._connections - 1),
            ]
        with m.Else():
            with m.Switch(row):
                for place, name in enumerate(TRANSMIT_STATE.members):
                    with m.Case(place):
                        m.d.comb += write.data.eq(Value.cast(self.state[name]))
            m.d.sync += row.eq(row + 1)
            with m.If(self.keeps):
                m.d.sync += [row.eq(0), written.eq(self.connection)]

        numbers, windows = self.state.numbers, self.state.windows
        deadlines = self.state.times.deadlines
        m.d.sync += self.deadlines_write.eq(writes[0])
        m.d.comb += [
            self.deadlines_connection.eq(written),
            # A connection that was forgotten has some in its row still.
            *(
                self.deadlines[name].eq(Mux(numbers.alive, Value.cast(deadlines[name]), 0))
                for name in DEADLINES.members
            ),
        ]
        # Written all the while, two cycles later.
        held, highest, ahead = Signal(), Signal(32), Signal()
        m.d.sync += [
            held.eq(self.holds),
            highest.eq(numbers.max),
            ahead.eq(numbers.probed & (numbers.una == numbers.max)),
            self.limits_write.eq(held),
            self.limits_connection.eq(self.connection),
            self.limits.oldest.eq(numbers.una - windows.max_window),
            self.limits.highest.eq(highest + ahead),
            self.limits.ended.eq(~numbers.alive),
        ]
        return m
