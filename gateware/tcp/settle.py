"""What may be acknowledged, or sent: what memory has answered for, in order."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.gateware.stream.prompt_fifo import PromptFifo
from stagecoach.gateware.tcp.layouts import (
    NoteLayout,
    settle_note,
    settled_layout,
    written_note,
)

NOTES = 32
"""That wait for memory: with frames of 1,500 bytes it answers 6,000 cycles later at most."""

ANSWERS = 2 * (NOTES + 4)
"""Of commands that have a note here or on its way here; a note has two of them at most."""

SETTLED = data.StructLayout({"number": 32, "edge": 32, "fin": 1})
"""What is acknowledged of a connection, the right edge of the window that goes with it, and whether
the FIN is the last part of it."""


class Settle(wiring.Component):
    """Says each note when the commands before it and its own were answered.

    Then its `number` is what may be acknowledged of its connection: nothing is that was not stored.
    If memory reports an error, that is `failed` once; the number of the connection does not move
    again, and nothing more is said of it until it begins anew.

    A note is said 3 cycles after its last `done`, a note without commands as long after it came;
    one every 2 cycles, or 3 with two commands. `o` that is not taken holds up the notes after it;
    `note` is taken while there is room for 32. Answers are always taken: they belong to notes here,
    or to one that is on its way. If memory never answers, nothing more is said.

    Parameters
    ----------
    connections: 2 to 256. note: layout of a note.

    Members
    -------
    note, done, error: of `ReceiveRing`, and of its port to memory. o: notes that came true.
    left: a pulse, a note is said, or nothing is said of it.
    connection_read: asks for what is acknowledged of a connection; a cycle later it is at
        `settled`: `number`, and `edge` and `fin` if notes have them; and at `lost`, whether that
        does not move again.
    """

    def __init__(self, connections: int = 64, note: NoteLayout = settle_note):
        if not 2 <= connections <= 256:
            raise ValueError(f"Settle connections is {connections!r}; allowed: 2 to 256")
        self._connections = connections
        bits = (connections - 1).bit_length()
        self._note = written_note(bits, note)
        self._kept = data.StructLayout(
            {name: shape for name, shape in SETTLED.members.items() if name in note(bits).members}
        )
        super().__init__(
            {
                "note": In(stream.Signature(self._note)),
                "done": In(1),
                "error": In(1),
                "left": Out(1),
                "o": Out(stream.Signature(settled_layout(bits, note))),
                "connection_read": In(bits),
                "settled": Out(self._kept),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.notes = notes = StreamFifo(self._note, NOTES)
        m.submodules.answers = answers = PromptFifo(1, ANSWERS)
        m.submodules.table = table = memory.Memory(
            shape=self._kept, depth=self._connections, init=[]
        )
        m.submodules.failures = failures = memory.Memory(shape=1, depth=self._connections, init=[])
        wiring.connect(m, wiring.flipped(self.note), notes.i)
        head = notes.o.p
        write, read = table.write_port(), table.read_port()
        failure, failed = failures.write_port(), failures.read_port(domain="comb")
        asked_failure = failures.read_port()

        answered = Signal(2)  # commands of the first note
        wrong = Signal()  # with an error
        all_answered = Signal()
        says = Signal()
        silent = Signal()  # the connection failed before
        m.d.comb += [
            answers.i.valid.eq(self.done),
            answers.i.payload.eq(self.error),
            all_answered.eq(notes.o.valid & (answered == head.writes)),
            answers.o.ready.eq(notes.o.valid & ~all_answered),
            says.eq(all_answered & ~self.o.valid),
            notes.o.ready.eq(says),
            self.left.eq(says),
            failed.addr.eq(head.note.connection),
            silent.eq(failed.data & ~head.note.begin),
            failure.addr.eq(head.note.connection),
            failure.data.eq(silent | wrong),
            failure.en.eq(says),
            write.addr.eq(head.note.connection),
            *(write.data[name].eq(head.note[name]) for name in self._kept.members),
            write.en.eq(says & ~silent & ~wrong),
            read.addr.eq(self.connection_read),
            self.settled.eq(read.data),
            asked_failure.addr.eq(self.connection_read),
            self.lost.eq(asked_failure.data),
        ]
        with m.If(answers.o.valid & answers.o.ready):
            m.d.sync += [answered.eq(answered + 1), wrong.eq(wrong | answers.o.payload)]
        with m.If(~self.o.valid):
            m.d.sync += [self.o.p.note.eq(head.note), self.o.p.failed.eq(wrong)]
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(says):
            m.d.sync += [answered.eq(0), wrong.eq(0), self.o.valid.eq(~silent)]
        return m
