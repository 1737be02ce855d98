"""Where what is sent waits for its acknowledgment: FPDUs go to the ring of their connection."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import FRAME_WORD, OCTETS_BITS
from stagecoach.gateware.host_memory import WriteClient
from stagecoach.gateware.tcp.layouts import (
    RING_ADDRESS_BITS,
    RING_MOST_BITS,
    ring_masks,
    stored_note,
    transmit_job,
)
from stagecoach.gateware.tcp.receive_ring import ReceiveRing
from stagecoach.gateware.tcp.sequence import less_than
from stagecoach.gateware.tcp.settle import Settle


class TransmitRing(wiring.Component):
    """Carries out jobs in order: byte s of a connection goes to its ring at s modulo the size.

    An FPDU is written by one command, or by two if the end of the ring is among its bytes. When
    memory has answered for it, and for all before it, the number after it is what is stored of the
    connection; so it is when bytes that are in the ring already are told of. The caller guarantees
    that a number follows those of the job before, and that all bytes from SND.UNA on fit in the
    ring: then none is written over before it was acknowledged.

    From the job of a connection that begins until that is in the order of the numbers, its stored
    number is still that of an earlier one, and it is not `known`.

    If memory reports an error, that is `failed` once, and the number does not move again until the
    connection begins anew.

    One word per cycle; an FPDU costs its words, a cycle, and one more if it fills a word more in
    memory than in the store, but 3 cycles at least, as does a job without one. From a job to its
    write command 3 cycles; from the last answer to the number 3. While memory takes nothing, or
    does not answer for 32 jobs, everything waits; while `failed` is not taken, numbers rest.

    Parameters
    ----------
    connections: 2 to 256.

    Members
    -------
    job: as said. words: of each FPDU, from lane 0 on. write: of memory.
    connection_read: asks for what is stored of a connection; a cycle later all before `stored` is,
        and nothing more will be if it is `lost`, both if it is `known`.
    failed: connections. left: of `Settle`: a pulse for each job but those of FPDUs that are not
        written.
    """

    def __init__(self, connections: int = 64):
        if not 2 <= connections <= 256:
            raise ValueError(f"TransmitRing connections is {connections!r}; allowed: 2 to 256")
        self._connections = connections
        bits = (connections - 1).bit_length()
        super().__init__(
            {
                "job": In(stream.Signature(transmit_job(bits))),
                "words": In(stream.Signature(FRAME_WORD)),
                "write": Out(WriteClient()),
                "connection_read": In(bits),
                "stored": Out(32),
                "lost": Out(1),
                "known": Out(1),
                "failed": Out(stream.Signature(bits)),
                "left": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.ring = ring = ReceiveRing(self._connections, stored_note)
        m.submodules.settle = settle = Settle(self._connections, stored_note)
        # Connections that begin.
        m.submodules.beginning = beginning = memory.Memory(
            shape=1, depth=self._connections, init=[]
        )
        mark, asked = beginning.write_port(), beginning.read_port()
        wiring.connect(m, wiring.flipped(self.words), ring.frames)
        wiring.connect(m, ring.write, wiring.flipped(self.write))
        wiring.connect(m, ring.note, settle.note)
        job, placed = self.job.p, ring.job.p

        begins, begun, tells = Signal(), Signal(), Signal()
        note = settle.o.p.note
        following = Signal(32)  # the number after the bytes
        place = Signal(RING_MOST_BITS)
        address = Signal(RING_ADDRESS_BITS)
        wrapped = Signal(OCTETS_BITS)
        _, mask = ring_masks(job.size)
        m.d.comb += [
            placed.frame.eq(job.fpdu),
            placed.octets.eq(Mux(job.fpdu, job.octets, 0)),
            placed.wrapped.eq(wrapped),
            placed.address.eq(address),
            placed.ring.eq(job.ring),
            placed.settle.eq(~job.fpdu | (job.octets != 0)),
            placed.note.connection.eq(job.connection),
            placed.note.number.eq(following),
            placed.note.begin.eq(job.begin),
            settle.done.eq(self.write.done),
            settle.error.eq(self.write.error),
            settle.connection_read.eq(self.connection_read),
            self.stored.eq(settle.settled.number),
            self.lost.eq(settle.lost),
            self.left.eq(settle.left),
            tells.eq(settle.o.p.failed),
            begins.eq(self.job.valid & self.job.ready & job.begin),
            begun.eq(settle.o.valid & note.begin & ~begins),
            mark.addr.eq(Mux(begins, job.connection, note.connection)),
            mark.data.eq(begins),
            mark.en.eq(begins | begun),
            asked.addr.eq(self.connection_read),
            self.known.eq(~asked.data),
            settle.o.ready.eq(Mux(tells, self.failed.ready, begun | ~note.begin)),
            self.failed.valid.eq(settle.o.valid & tells),
            self.failed.payload.eq(note.connection),
        ]
        with m.FSM(init="TAKE"):
            with m.State("TAKE"):  # a job
                m.d.sync += [
                    place.eq(job.number & mask),
                    following.eq(job.number + job.octets),
                ]
                with m.If(self.job.valid):
                    m.next = "PLACE"
            with m.State("PLACE"):  # of its bytes, and how many are after the end of the ring
                after = following & mask
                m.d.sync += [
                    address.eq(job.ring + place),
                    wrapped.eq(Mux(job.fpdu & less_than(after, job.octets), after, 0)),
                ]
                m.next = "HAND"
            with m.State("HAND"):  # until the one before it is done
                m.d.comb += [ring.job.valid.eq(1), self.job.ready.eq(ring.job.ready)]
                with m.If(ring.job.ready):
                    m.next = "TAKE"
        return m
