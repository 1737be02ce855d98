"""Where payload goes into the ring of its connection: words of frames become writes of memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.dma.lanes import choose_lanes, lanes_below, rotate_lanes
from stagecoach.gateware.ethernet.layouts import FRAME_WORD, OCTETS_BITS, RAW_WORD
from stagecoach.gateware.host_memory import WORD, WriteClient
from stagecoach.gateware.stream.buffer import StreamBuffer
from stagecoach.gateware.tcp.layouts import NoteLayout, receive_job, settle_note, written_note


class ReceiveRing(wiring.Component):
    """Carries out jobs in order, each with the next frame if it has one.

    The bytes of a job are turned to the lanes of their address and written by one command, or by
    two if the end of the ring is among them; all other words of the frame are dropped. A frame that
    is `raw` leaves as it came. The note of a job leaves when the job is taken, with the number of
    its commands: `done` of `write` belongs to the notes in order.

    One word per cycle; a frame costs its words, and one cycle more if its bytes fill a word more
    in memory than in the frame, or if none of its words stands before them. A job without a frame
    costs nothing: it is taken while words of the frame before it move. From a job with a frame to
    its write command 1 cycle; from the first word with bytes to its word in memory 2, or 3 if it
    has to be joined with the next one.

    While memory, `note` or `raw` is not taken, the frame waits where it is, and all others after
    it. Addresses wrap by jobs, not here.

    Parameters
    ----------
    connections: 2 to 256. note: layout of what is said of a job.

    Members
    -------
    job, frames: as said; a frame has all bytes that its job names. write: of memory; `done` and
    `error` are for others. note: to `Settle`. raw: frames for the driver, the
    first word with the bytes of the whole frame.
    """

    def __init__(self, connections: int = 64, note: NoteLayout = settle_note):
        if not 2 <= connections <= 256:
            raise ValueError(f"ReceiveRing connections is {connections!r}; allowed: 2 to 256")
        bits = (connections - 1).bit_length()
        super().__init__(
            {
                "job": In(stream.Signature(receive_job(bits, note))),
                "frames": In(stream.Signature(FRAME_WORD)),
                "write": Out(WriteClient()),
                "note": Out(stream.Signature(written_note(bits, note))),
                "raw": Out(stream.Signature(RAW_WORD)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        job, frames, command = self.job.p, self.frames, self.write.command
        m.submodules.words = words = StreamBuffer(WORD)
        wiring.connect(m, words.o, wiring.flipped(self.write.data))

        # Commands of the last job: one on the port, and the one after the ring's end.
        wrapped = Signal(OCTETS_BITS)
        ring = Signal.like(job.ring)
        rest = Signal()  # there is one
        with m.If(command.ready):
            m.d.sync += [
                command.valid.eq(rest),
                command.p.address.eq(ring),
                command.p.octets.eq(wrapped),
                rest.eq(0),
            ]
        with m.If(self.note.ready):
            m.d.sync += self.note.valid.eq(0)

        # What is to be done with the frame. Bytes that move to higher lanes fill a word of memory
        # with each word of the frame; if they move to lower lanes, the first word fills none.
        lane, target = job.skip[:3], job.address[:3]
        reads, fills = Signal(OCTETS_BITS - 2), Signal(OCTETS_BITS - 2)
        skips = Signal(OCTETS_BITS - 3)  # words before the first one with bytes
        left = Signal.like(reads)  # words with bytes
        rotation = Signal(3)
        primes = Signal()  # the next word of the frame fills none
        flushes = Signal()  # what is left of the last word fills another one
        fills_left, fills_rest = Signal.like(fills), Signal.like(fills)  # of this command, the next
        octets = Signal(OCTETS_BITS)  # of a raw frame
        writes = Signal()
        begin = Signal()
        header = Signal()  # the first word of the frame has no bytes that are written
        m.d.comb += [
            writes.eq(~job.raw & (job.octets != 0)),
            reads.eq((lane + job.octets + 7)[3:]),
            fills.eq((target + job.octets + 7)[3:]),
            header.eq(~job.raw & ((job.skip[3:] != 0) | (job.octets == 0))),
            # One without a frame says its note, and no more.
            self.job.ready.eq(((begin & ~command.valid) | ~job.frame) & ~self.note.valid),
        ]
        with m.If(self.job.valid & self.job.ready):
            m.d.sync += [
                self.note.valid.eq(job.settle),
                self.note.p.writes.eq(Mux(writes, 1 + (job.wrapped != 0), 0)),
                self.note.p.note.eq(job.note),
            ]

        # Words with bytes, turned; and how they fill words of memory.
        turned, previous = Signal(64), Signal(64)
        from_previous = Signal(8)  # lanes
        filled, last = Signal(), Signal()
        step = Signal()  # what was turned moves on
        moves = Signal()  # the next is turned
        m.d.comb += [
            step.eq(~filled | words.i.ready),
            words.i.valid.eq(filled),
            words.i.p.data.eq(choose_lanes(from_previous, previous, turned)),
            words.i.p.last.eq(last),
        ]
        with m.If(words.i.ready):
            m.d.sync += filled.eq(0)
        with m.If(moves):
            m.d.sync += [
                turned.eq(rotate_lanes(frames.p.data, rotation)),
                previous.eq(turned),
                from_previous.eq(lanes_below(rotation)),
                filled.eq(~primes),
                last.eq(fills_left == 1),
                primes.eq(0),
            ]
            with m.If(~primes):
                m.d.sync += fills_left.eq(Mux(fills_left == 1, fills_rest, fills_left - 1))

        ended = Signal()  # the last word with bytes was the last of the frame
        with m.FSM(init="TAKE"):
            with m.State("TAKE"):  # the next job, and a word of its frame that is dropped
                dropped = frames.valid & header
                m.d.comb += begin.eq(1)
                m.d.sync += [
                    left.eq(reads),
                    rotation.eq(target - lane),
                    primes.eq(target < lane),
                    flushes.eq((target < lane) ^ (fills != reads)),
                    fills_left.eq((target + (job.octets - job.wrapped) + 7)[3:]),
                    fills_rest.eq((job.wrapped + 7)[3:]),
                    octets.eq(job.octets),
                ]
                with m.If(self.job.valid & self.job.ready & job.frame):
                    m.d.comb += frames.ready.eq(header)
                    m.d.sync += [
                        command.valid.eq(writes),
                        command.p.address.eq(job.address),
                        command.p.octets.eq(job.octets - job.wrapped),
                        rest.eq(writes & (job.wrapped != 0)),
                        ring.eq(job.ring),
                        wrapped.eq(job.wrapped),
                        skips.eq(job.skip[3:] - dropped),
                    ]
                    with m.If(job.raw):
                        m.next = "RAW"
                    with m.Elif(writes):
                        m.next = "SKIP"
                        with m.If(job.skip[3:] == dropped):
                            m.next = "MOVE"
                    with m.Elif(~(dropped & frames.p.last)):
                        m.next = "DROP"
            with m.State("SKIP"):  # words before those with bytes
                m.d.comb += frames.ready.eq(1)
                with m.If(frames.valid):
                    m.d.sync += skips.eq(skips - 1)
                    with m.If(skips == 1):
                        m.next = "MOVE"
            with m.State("MOVE"):  # words with bytes
                m.d.comb += [frames.ready.eq(step), moves.eq(step & frames.valid)]
                with m.If(moves):
                    m.d.sync += [left.eq(left - 1), ended.eq(frames.p.last)]
                    with m.If((left == 1) & flushes):
                        m.next = "FLUSH"
                    with m.Elif(frames.p.last):
                        m.next = "TAKE"
                    with m.Elif(left == 1):
                        m.next = "DROP"
            with m.State("FLUSH"):  # what is left of the last one
                m.d.comb += moves.eq(step)
                with m.If(step):
                    m.next = "DROP"
                    with m.If(ended):
                        m.next = "TAKE"
            with m.State("DROP"):  # words after those with bytes
                m.d.comb += frames.ready.eq(1)
                with m.If(frames.valid & frames.p.last):
                    m.next = "TAKE"
            with m.State("RAW"):  # all words of a frame of the driver
                m.d.comb += [self.raw.valid.eq(frames.valid), frames.ready.eq(self.raw.ready)]
                with m.If(frames.valid & frames.ready):
                    m.d.sync += octets.eq(octets - 8)
                    with m.If(frames.p.last):
                        m.next = "TAKE"
        m.d.comb += [
            self.raw.p.data.eq(frames.p.data),
            self.raw.p.last.eq(frames.p.last),
            self.raw.p.octets.eq(octets),
        ]
        return m
