"""Counts what every QP sends and receives, and why QPs stop."""

from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.encodings import encoding
from stagecoach.gateware.layouts import QpStrobe
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.rdmap.headers import Opcode
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.registers import encodings, field_width

COUNTER_BITS = field_width("COUNTER_LOW", "value") + field_width("COUNTER_HIGH", "value")
"""Width of a word of block RAM."""

ROWS = 64
"""Least number of rows: one for each cause."""

LOST_MOST = (1 << field_width("COUNTER_LOST", "value")) - 1
"""Where the count of lost events stays."""

assert max(Cause) < ROWS

WORD_NUMBER_BITS = 3


CounterWord = encoding(
    "CounterWord",
    encodings()["counter"],
    WORD_NUMBER_BITS,
    "COUNTER_SELECT.counter: the words of a row. All but `STOPPED` are those of a QP.",
)


# Of the slots of an event, one word each: that of the outstanding reads.
SLOT_OF_READS = 3


def counter_rows(config: RnicConfig) -> int:
    """Rows of eight counters: one for each QP and one for each cause, whatever is more."""
    return max(config.qps, ROWS)


def fpdu_layout(config: RnicConfig) -> data.StructLayout:
    """What is counted of an FPDU: L and opcode stand in its first two bytes."""
    return data.StructLayout(
        {"valid": 1, "qp": config.qp_bits, "ulpdu_length": 16, "last": 1, "opcode": 4}
    )


class Counters(wiring.Component):
    """Adds to counters of `COUNTER_BITS` bits, in one block RAM, and reads one at a time.

    Row n has seven counters of QP n, and `STOPPED` of cause n: how many QPs stopped for it. That of
    cause NONE counts FPDUs that were dropped, because their QP did not run. Bytes are those of
    ULPDUs, without length, Markers, pad and CRC of the FPDU; messages are DDP Messages, counted at
    their last segment. Outstanding reads grow with a Read or Atomic Request and shrink with the
    last segment of a response; a QP that connects begins with none. Nothing else is reset in the
    life of a QP. All are zero `rows * 8` cycles after reset; nothing is counted before.

    An event takes a turn of 4 cycles, one counter each, and is in memory at most 4 turns and 5
    cycles after it came, if no other one came twice meanwhile. Nothing ever waits for this block:
    of each source one event waits, and one more that comes is not counted but in `lost`, which
    stays at `LOST_MOST`. So FPDUs every 8 cycles in both directions at a time are counted, or
    every 4 in one.

    Members
    -------
    sent, received: In, an FPDU, with `valid` for one cycle.
    dropped: In(1), a pulse for a received FPDU that is dropped.
    stopped: In, a QP stopped for `cause`, with `valid` for one cycle.
    connect: In(QpStrobe), the QP is connected.
    query: In(stream), which counter to read; taken when it is in `value`, at most 3 turns later.
        It goes before all events.
    value: Out, the counter that was asked for last.
    lost: Out(8), events that are not counted.
    """

    def __init__(self, config: RnicConfig) -> None:
        self._rows = rows = counter_rows(config)
        fpdu = fpdu_layout(config)
        super().__init__(
            {
                "sent": In(fpdu),
                "received": In(fpdu),
                "dropped": In(1),
                "stopped": In(data.StructLayout({"valid": 1, "cause": 8})),
                "connect": In(QpStrobe(config)),
                "query": In(
                    stream.Signature(
                        data.StructLayout({"counter": CounterWord, "index": ceil_log2(rows)})
                    )
                ),
                "value": Out(COUNTER_BITS),
                "lost": Out(range(LOST_MOST + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        row_bits = ceil_log2(self._rows)
        m.submodules.memory = memory = Memory(
            shape=COUNTER_BITS, depth=self._rows * 8, init=[], attrs=NO_COLLISION
        )
        read, write = memory.read_port(), memory.write_port()

        # After reset every counter is made zero.
        sweep = Signal(row_bits + WORD_NUMBER_BITS + 1)
        sweeping = ~sweep[-1]
        with m.If(sweeping):
            m.d.sync += sweep.eq(sweep + 1)
        counting = Signal()  # without the fan-out of the other
        m.d.sync += counting.eq(~sweeping)

        turn_ends = Signal()
        slot = Signal(2)
        m.d.sync += [slot.eq(slot + 1), turn_ends.eq(slot == 2)]

        # What waits of each source
        sent, received = Signal.like(self.sent), Signal.like(self.received)
        connect = Signal.like(self.connect.qp)
        cause = Signal(6)
        waits = Signal(5)
        come = Signal(5)
        taken = Signal(5)
        first_sent, first_received = Signal.like(self.sent), Signal.like(self.received)
        first_connect = Signal.like(self.connect.qp)
        first_cause = Signal.like(cause)
        m.d.sync += [
            first_sent.eq(self.sent),
            first_received.eq(self.received),
            first_connect.eq(self.connect.qp),
            first_cause.eq(self.stopped.cause),
            come.eq(
                Cat(
                    self.connect.valid,
                    self.sent.valid,
                    self.received.valid,
                    self.stopped.valid,
                    self.dropped,
                )
                & counting.replicate(5)
            ),
            waits.eq((waits & ~taken) | come),
        ]
        for source, held, first in (
            (0, connect, first_connect),
            (1, sent, first_sent),
            (2, received, first_received),
            (3, cause, first_cause),
        ):
            with m.If(~waits[source] | taken[source]):
                m.d.sync += held.eq(first)
        is_lost = Signal()
        m.d.sync += is_lost.eq((waits & ~taken & come).any())
        with m.If(is_lost & (self.lost != LOST_MOST)):
            m.d.sync += self.lost.eq(self.lost + 1)

        # The event of this turn
        row = Signal(row_bits)
        length = Signal(16)
        last, changes_reads = Signal(), Signal()
        of_query, of_connect, of_sent, of_received, of_stop = (Signal() for _ in range(5))
        asked = Signal()  # the query is under way
        with m.If(turn_ends):
            begins = self.query.valid & ~asked & counting
            m.d.sync += [
                of_query.eq(begins),
                *(of.eq(0) for of in (of_connect, of_sent, of_received, of_stop)),
            ]
            with m.If(begins):
                m.d.sync += [row.eq(self.query.p.index), asked.eq(1)]
            with m.Elif(waits[0]):
                m.d.comb += taken[0].eq(1)
                m.d.sync += [row.eq(connect), of_connect.eq(1)]
            for source, of, fpdu, reads in (
                (1, of_sent, sent, (Opcode.RDMA_READ_REQUEST, Opcode.ATOMIC_REQUEST)),
                (2, of_received, received, (Opcode.RDMA_READ_RESPONSE, Opcode.ATOMIC_RESPONSE)),
            ):
                is_read = Cat(fpdu.opcode == opcode for opcode in reads).any()
                with m.Elif(waits[source]):
                    m.d.comb += taken[source].eq(1)
                    m.d.sync += [
                        row.eq(fpdu.qp),
                        of.eq(1),
                        length.eq(fpdu.ulpdu_length),
                        last.eq(fpdu.last),
                        changes_reads.eq(is_read & fpdu.last),
                    ]
            with m.Elif(waits[3]):
                m.d.comb += taken[3].eq(1)
                m.d.sync += [row.eq(cause), of_stop.eq(1)]
            with m.Elif(waits[4]):
                m.d.comb += taken[4].eq(1)
                m.d.sync += [row.eq(Cause.NONE), of_stop.eq(1)]

        # First cycle of a slot: the address, and what to add.
        word = Signal(WORD_NUMBER_BITS)
        amount = Signal(16)
        negative, clears, writes = Signal(), Signal(), Signal()
        address = Signal(row_bits + WORD_NUMBER_BITS)
        counts = of_sent | of_received
        is_first = slot == 0
        m.d.comb += clears.eq(of_connect & (slot == SLOT_OF_READS))
        with m.If(of_query):
            m.d.comb += word.eq(self.query.p.counter)
        with m.Elif(of_stop):
            m.d.comb += word.eq(CounterWord.STOPPED)
        with m.Elif(slot == SLOT_OF_READS):
            m.d.comb += word.eq(CounterWord.OUTSTANDING_READS)
        with m.Else():
            m.d.comb += word.eq(Cat(slot, of_received))
        m.d.comb += [
            address.eq(Cat(word, row)),
            read.addr.eq(address),
            read.en.eq(1),
            writes.eq(counts | clears | (of_stop & is_first)),
            negative.eq(of_received & (slot == SLOT_OF_READS) & changes_reads),
        ]
        with m.Switch(slot):
            with m.Case(0):
                m.d.comb += amount.eq(1)
            with m.Case(1):
                m.d.comb += amount.eq(length)
            with m.Case(2):
                m.d.comb += amount.eq(last)
            with m.Case(3):
                m.d.comb += amount.eq(Mux(negative, 0xFFFF, changes_reads))

        # Second: the memory. Third: its word. Fourth: the sum, which is written.
        stages = data.StructLayout({"address": address.shape(), "writes": 1, "clears": 1})
        control = [Signal(stages, name=f"control_{number}") for number in range(3)]
        queries = Signal(2)
        operand = [Signal(17, name=f"operand_{number}") for number in range(2)]
        old, total = Signal(COUNTER_BITS), Signal(COUNTER_BITS)
        m.d.sync += [
            control[0].address.eq(address),
            control[0].writes.eq(writes),
            control[0].clears.eq(clears),
            *(after.eq(before) for before, after in pairwise(control)),
            operand[0].eq(Cat(amount, negative)),
            operand[1].eq(operand[0]),
            # In the last slot all that was counted before is in memory, and nothing is written.
            queries.eq(Cat(of_query & (slot == 3), queries[0])),
            old.eq(read.data),
            total.eq(old + Cat(operand[1], operand[1][-1].replicate(COUNTER_BITS - 17))),
        ]
        with m.If(control[1].clears):
            m.d.sync += total.eq(0)
        m.d.sync += self.query.ready.eq(queries[1])
        with m.If(queries[1]):
            m.d.sync += self.value.eq(old)
        with m.If(self.query.ready):
            m.d.sync += asked.eq(0)
        m.d.comb += [
            write.addr.eq(control[2].address),
            write.data.eq(total),
            write.en.eq(control[2].writes),
        ]
        with m.If(sweeping):
            m.d.comb += [
                write.addr.eq(sweep[:-1]),
                write.data.eq(Const(0, COUNTER_BITS)),
                write.en.eq(1),
            ]
        return m
