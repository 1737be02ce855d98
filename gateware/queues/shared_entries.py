"""Shows the consumer of receive entries those of each QP, of its own ring or of a shared one."""

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind, QpStrobe
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.queues.ports import EntryPort, ReceiveEntryPort
from stagecoach.gateware.registers_apart import keep_apart

LOOKUP = 2
"""Cycles from `select` and `word_address` to what is said of them."""


class SharedEntries(wiring.Component):
    """Takes receive entries from the rings for the QPs, and keeps what a QP has taken.

    The ring of a QP is the one with its number, or that which CREATE names. Its own ring is shown
    as it is, popped with `pop`. Of a shared one an entry is popped with the first `keep` or `pop`
    of a message. With `keep` it is the QP's from then on: `level` and `posted` are 1, and index and
    words those of the entry, until `pop`. The words were copied when they were read, so `keep`
    comes in the cycle after that of the last one at the earliest.

    When a pop leaves fewer entries in a shared ring than its limit, `reached` pulses three cycles
    later, and the ring has no limit any more. RING_LIMIT gives it one, or has `reached` pulse if
    there are fewer entries already: of the first `producer` ones those that are not popped.
    RING_CREATE takes it away.

    Latency: none; what is said of `select` is said as early as the rings say it. Throughput: one
    pop or keep every three cycles. A command is taken in the cycle after it came, or CREATE in that
    cycle, but not in the cycle of a pop or keep nor in that after it, or the two after it if that
    popped an entry of a shared ring (CREATE: of `delivered`, in that after it). Nothing else is
    ever waited for. Numbers are mod 2^16, as those of the rings.

    Members
    -------
    qp_command: In(stream qp_command): CREATE, when the QP has nothing under way, and of rings.
    entries: the consumer; `ReceiveEntryPort`, seen from here.
    rings: Out(EntryPort), of which the numbers are those of rings.
    delivered: In(QpStrobe), a message of the QP that had an entry was delivered, before its next
        one takes an entry; not in the cycle before a keep or pop.
    reached: Out(QpStrobe), the limit of a ring was reached.
    query_qp: In; `taken`, Out(1), and `taken_index`, Out(16), two cycles later: this QP has taken
        that entry of a shared ring for a message that is not delivered.
    """

    def __init__(self, config: RnicConfig, words: int):
        self._config = config
        self._words = words
        super().__init__(
            {
                "qp_command": In(stream.Signature(Layouts(config).qp_command)),
                "entries": In(ReceiveEntryPort(config, words)),
                "rings": Out(EntryPort(config, words)),
                "delivered": In(QpStrobe(config)),
                "reached": Out(QpStrobe(config)),
                "query_qp": In(config.qp_bits),
                "taken": Out(1),
                "taken_index": Out(16),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        entries, rings = self.entries, self.rings
        qps = self._config.qps

        def table(name: str, shape: data.StructLayout | int) -> Memory:
            # They are read while they are written, which block RAM does not bear.
            m.submodules[name] = it = Memory(
                shape=shape, depth=qps, init=[], attrs={"ram_style": "distributed"}
            )
            return it

        command, kind = self.qp_command.payload, self.qp_command.payload.kind
        begins = Signal()  # a QP, which has taken nothing
        makes = Signal()  # a shared ring, without a limit
        bounds = Signal()  # a ring gets a limit
        uses = Signal()  # a message takes an entry, or ends
        quiet = (
            Signal()
        )  # nothing was used or compared in the cycle before, and the command was there
        popped = QpStrobe(self._config).create(path=("popped",))
        delivered = QpStrobe(self._config).create(path=("later",))
        m.d.sync += [
            quiet.eq(self.qp_command.valid & ~self.qp_command.ready & ~uses & ~popped.valid),
            delivered.valid.eq(self.delivered.valid),
            delivered.qp.eq(self.delivered.qp),
        ]
        m.d.comb += [
            uses.eq(entries.pop | entries.keep),
            self.qp_command.ready.eq(
                ~uses & Mux(kind == QpCommandKind.CREATE, ~delivered.valid, quiet)
            ),
        ]
        with m.If(self.qp_command.valid & self.qp_command.ready):
            m.d.comb += [
                begins.eq(kind == QpCommandKind.CREATE),
                makes.eq(kind == QpCommandKind.RING_CREATE),
                bounds.eq(kind == QpCommandKind.RING_LIMIT),
            ]

        # The ring of the QP that is selected in the next cycle, looked up in the cycle before
        source = data.StructLayout({"shared": 1, "ring": self._config.qp_bits})
        sources = table("sources", source)
        sources_write, arriving = sources.write_port(), sources.read_port(domain="comb")
        coming, selected = Signal(source), Signal(source)
        asked = Signal()  # whether the ring of the cycle before was shared
        shared = Signal()  # that of `LOOKUP` cycles ago
        m.d.comb += [
            arriving.addr.eq(entries.arriving),
            sources_write.addr.eq(command.qp),
            sources_write.data.shared.eq(command.shared),
            sources_write.data.ring.eq(Mux(command.shared, command.ring, command.qp)),
            sources_write.en.eq(begins),
            rings.coming.eq(coming.ring),
            rings.select.eq(selected.ring),
            rings.word_address.eq(entries.word_address),
        ]
        m.d.sync += [selected.eq(coming), asked.eq(selected.shared), shared.eq(asked)]
        with m.If(~entries.stays):
            m.d.sync += coming.eq(arriving.data)

        # What each QP has taken: `held` until its message ends, `open` until that is delivered
        row = data.StructLayout({"held": 1, "open": 1, "index": 16})
        taken = table("taken", row)
        taken_write, taken_read, query = taken.write_port(), taken.read_port(), taken.read_port()
        mine = Signal(row)
        m.d.comb += [
            taken_read.addr.eq(entries.select),
            query.addr.eq(self.query_qp),
            taken_write.addr.eq(Mux(begins, command.qp, delivered.qp)),
            taken_write.data.index.eq(Mux(mine.held, mine.index, rings.index)),
            taken_write.en.eq(begins | delivered.valid | (uses & shared)),
        ]
        with m.If(uses):
            m.d.comb += [
                taken_write.addr.eq(entries.select),
                taken_write.data.held.eq(entries.keep),
                taken_write.data.open.eq(1),
            ]
        m.d.sync += [
            mine.eq(taken_read.data),
            self.taken.eq(query.data.open),
            self.taken_index.eq(query.data.index),
        ]

        # The words of an entry are copied as they come, while it is nobody's. After `keep` nothing
        # is copied until that is known.
        m.submodules.words = words = Memory(
            shape=64, depth=qps * self._words, init=[], attrs=NO_COLLISION
        )
        write, read = words.write_port(), words.read_port()
        address = [Cat(entries.word_address, entries.select)]
        ended = [uses]
        for cycle in range(LOOKUP):
            address.append(Signal.like(address[0], name=f"address_{cycle}"))
            ended.append(Signal(name=f"ended_{cycle}"))
            m.d.sync += [address[-1].eq(address[-2]), ended[-1].eq(ended[-2])]
        held_word = Signal(64)
        m.d.comb += [
            read.addr.eq(address[0]),
            write.addr.eq(address[-1]),
            write.data.eq(rings.word),
            write.en.eq(shared & ~mine.held & ~Cat(ended).any()),
        ]
        m.d.sync += held_word.eq(read.data)

        # What the consumer sees
        m.d.comb += [
            entries.level.eq(Mux(mine.held, 1, rings.level)),
            entries.posted.eq(Mux(mine.held, 1, rings.posted)),
            entries.index.eq(Mux(mine.held, mine.index, rings.index)),
            entries.word.eq(Mux(mine.held, held_word, rings.word)),
            entries.failed.eq(rings.failed & shared & ~mine.held),
            entries.shared.eq(shared & ~mine.held),
        ]
        takes = shared & ~mine.held  # with the first that the message does
        # The fetcher is far: it has what decides about a pop in registers of its own.
        far_shared, far_held = Signal(), Signal()
        keep_apart(shared, far_shared)
        keep_apart(mine, far_held)
        m.d.sync += [far_shared.eq(asked), far_held.eq(taken_read.data.held)]
        m.d.comb += [
            rings.pop.eq(entries.pop & ~mine.held | entries.keep & takes),
            rings.popping.eq(~far_held & (entries.popping | entries.keep & far_shared)),
        ]

        # Limits: a pop leaves one entry less than there were; it is read in the cycle after the pop
        # and compared in the next one. One that comes is compared with what
        # was posted when the host gave it, and popped until then.
        limits, numbers = table("limits", 16), table("numbers", 16)
        limits_write, numbers_write = limits.write_port(), numbers.write_port()
        limits_read, numbers_read = (each.read_port(domain="comb") for each in (limits, numbers))
        there, bound = Signal(16), Signal(16)
        compared = QpStrobe(self._config).create(path=("compared",))
        there_then = Signal(16)
        left = Signal(16)
        reaches, passes = Signal(), Signal()
        m.d.sync += [
            popped.valid.eq(uses & takes),
            popped.qp.eq(rings.select),
            there.eq(rings.posted),
            compared.valid.eq(popped.valid),
            compared.qp.eq(popped.qp),
            there_then.eq(there),
            bound.eq(limits_read.data),
            left.eq(command.producer - numbers_read.data),
            self.reached.valid.eq(reaches | passes),
            self.reached.qp.eq(limits_write.addr),
        ]
        m.d.comb += [
            numbers_read.addr.eq(command.qp),
            numbers_write.addr.eq(Mux(makes, command.qp, rings.select)),
            numbers_write.data.eq(Mux(makes, 0, rings.index + 1)),
            numbers_write.en.eq(makes | (uses & takes)),
            limits_read.addr.eq(popped.qp),
            reaches.eq(compared.valid & (there_then <= bound)),
            passes.eq(bounds & (left < command.limit)),
            limits_write.addr.eq(Mux(compared.valid, compared.qp, command.qp)),
            limits_write.data.eq(Mux(bounds & ~passes, command.limit, 0)),
            limits_write.en.eq(makes | bounds | reaches),
        ]
        return m
