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

    `fetches` for five cycles in a row, with the connection; `loads` says which part of the state is
    in `word`, and `fetched` stands with the last one. `holds` as long as `state` is that of the
    connection. `keeps` for a cycle, the last one of that: rows are written in it and in the three
    after it, so the state stays until the next one is loaded, which takes so long. Another fetch
    may begin two cycles after `keeps`: each row is written two cycles before it is read.

    After a reset all connections are forgotten, a cycle for each one; then `ready` rises.

    Parameters
    ----------
    connections: 2 to 256.

    Members
    -------
    connection, fetches, keeps, holds, state: as said. ready, fetched, loads, word: as said.
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
                "fetched": Out(1),
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
        step = Signal(range(ROWS + 1))
        m.d.comb += [
            read.addr.eq(Cat(step[: ROWS.bit_length() - 1], self.connection)),
            self.word.eq(read.data),
            self.loads.eq(Cat(self.fetches & (step == place + 1) for place in range(ROWS))),
            self.fetched.eq(self.loads[-1]),
        ]
        m.d.sync += step.eq(Mux(self.fetches & ~self.fetched, step + 1, 0))

        row, written = Signal(range(ROWS)), Signal.like(self.connection)
        m.d.comb += [
            write.addr.eq(Cat(row, Mux(self.keeps, self.connection, written))),
            write.en.eq(self.keeps | (row != 0) | ~self.ready),
        ]
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
            with m.If(write.en):
                m.d.sync += row.eq(row + 1)
            with m.If(self.keeps):
                m.d.sync += written.eq(self.connection)

        numbers, windows = self.state.numbers, self.state.windows
        deadlines = self.state.times.deadlines
        m.d.comb += [
            self.deadlines_write.eq(self.keeps),
            self.deadlines_connection.eq(self.connection),
            # A connection that was forgotten has some in its row still.
            *(
                self.deadlines[name].eq(Mux(numbers.alive, Value.cast(deadlines[name]), 0))
                for name in DEADLINES.members
            ),
        ]
        # Written all the while.
        m.d.sync += self.limits_write.eq(self.holds)
        with m.If(self.holds):
            ahead = numbers.probed & (numbers.una == numbers.max)
            m.d.sync += [
                self.limits_connection.eq(self.connection),
                self.limits.oldest.eq(numbers.una - windows.max_window),
                self.limits.highest.eq(numbers.max + ahead),
                self.limits.ended.eq(~numbers.alive),
            ]
        return m
