"""What the device asks of received streams: requests are answered out of the rings."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.host_memory import ReadClient
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.tcp.layouts import (
    RING_ADDRESS_BITS,
    attachment_layout,
    release_layout,
    ring_masks,
)
from stagecoach.gateware.tcp.ring_gather import RingGather
from stagecoach.gateware.tcp.sequence import less_than
from stagecoach.gateware.tcp.word_table import WordTable

READS = 32
"""Requests of which words are waited for, after the one whose words come."""

REQUESTS = READS + 4
"""Not answered yet: those, the one whose words come, and those on their way to the answer."""


class LlpReceive(wiring.Component):
    """Reads the bytes of each request out of the ring of its connection, in order.

    A request becomes one read, or two if the end of the ring is among its bytes, and they leave
    from lane 0 on. A request for a lane that is not attached is answered by zeros, and reads
    nothing: the ring may be gone. Releases get the number of their connection; those of a lane
    that is not attached are dropped.

    A request every 6 cycles, or 7 with two reads; 6 cycles from a request to its read command,
    2 from a word of memory to that of the answer; one word per cycle. While nobody takes answers or
    `failed`, or memory does not answer, requests wait, once 32 are under way; releases do not. If
    a byte could not be read, `failed` says whose, before the last word of that answer leaves.

    Parameters
    ----------
    config: sizes of the device: a lane for each of its QPs.

    Members
    -------
    request, answer: of the LLP port. release: of the LLP port. o: the same for the receive
    processor. attach, attachment: a pulse, a lane is attached or detached; a request, or release,
    for it must not wait then. read: of memory. failed: connections.
    answered: a pulse, all of an answer was taken.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        mpa, bits = MpaLayouts(config), config.qp_bits
        super().__init__(
            {
                "request": In(stream.Signature(mpa.rx_request)),
                "answer": Out(stream.Signature(64)),
                "release": In(stream.Signature(mpa.rx_release)),
                "o": Out(stream.Signature(release_layout(bits))),
                "attach": In(1),
                "attachment": In(attachment_layout(bits)),
                "read": Out(ReadClient()),
                "failed": Out(stream.Signature(bits)),
                "answered": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        # The first word has what is wanted first.
        row_layout = data.StructLayout(
            {"base": 32, "size": 4, "ring": RING_ADDRESS_BITS}
            | {"attached": 1, "connection": config.qp_bits}
        )
        m.submodules.lanes = lanes = WordTable(row_layout, config.qps)
        m.submodules.gather = gather = RingGather(READS, config.qp_bits)
        wiring.connect(m, gather.read, wiring.flipped(self.read))
        self._releases(m)

        request, place = self.request.p, gather.i.p
        row = lanes.found
        number, end = Signal(32), Signal(32)
        _, mask = ring_masks(row.size)
        after = Signal(17)  # bytes after the end of the ring, if it is among them
        address = Signal.like(row.ring)
        wrapped = Signal(17)
        m.d.comb += [
            lanes.address.eq(self.attachment.lane),
            *(lanes.row[name].eq(self.attachment[name]) for name in row_layout.members),
            lanes.write.eq(self.attach),
            lanes.read_address.eq(request.connection),
            after.eq(end & mask),
            place.address.eq(address),
            place.octets.eq(request.octets),
            place.wrapped.eq(wrapped),
            place.ring.eq(row.ring),
            place.inline.eq(~row.attached),
            place.tag.eq(row.connection),
        ]
        with m.FSM(init="TAKE"):
            with m.State("TAKE"):  # a request
                with m.If(self.request.valid & ~lanes.writes):
                    m.d.comb += lanes.fetch.eq(1)
                    m.next = "ROW"
            with m.State("ROW"):  # that of its lane comes
                m.next = "NUMBER"
            with m.State("NUMBER"):  # of its first byte, and the one after its last
                m.d.sync += [
                    number.eq(row.base + request.position),
                    end.eq(row.base + request.position + request.octets),
                ]
                m.next = "REST"
            with m.State("REST"):  # of the row
                m.next = "PLACE"
            with m.State("PLACE"):  # in the ring
                m.d.sync += [
                    address.eq(row.ring + (number & mask)),
                    wrapped.eq(Mux(less_than(end & mask, request.octets), after, 0)),
                ]
                m.next = "READ"
            with m.State("READ"):  # until all commands are taken
                m.d.comb += [
                    gather.i.valid.eq(self.request.valid),
                    self.request.ready.eq(gather.i.ready),
                ]
                with m.If(self.request.ready):
                    m.next = "TAKE"

        # Answers: a failure is told before the word that has it.
        beat = gather.o
        tells, told = Signal(), Signal()
        m.d.comb += [
            tells.eq(beat.p.error & ~told),
            self.failed.valid.eq(beat.valid & tells),
            self.failed.payload.eq(beat.p.tag),
            self.answer.valid.eq(beat.valid & ~tells),
            self.answer.payload.eq(beat.p.data),
            beat.ready.eq(self.answer.ready & ~tells),
            self.answered.eq(beat.valid & beat.ready & beat.p.last),
        ]
        with m.If(beat.valid & beat.ready):
            m.d.sync += told.eq(0)
        with m.Elif(self.failed.valid & self.failed.ready):
            m.d.sync += told.eq(1)
        return m

    def _releases(self, m: Module) -> None:
        """Give releases the number of their connection."""
        bits = self._config.qp_bits
        layout = data.StructLayout({"attached": 1, "connection": bits})
        m.submodules.connections = connections = memory.Memory(
            shape=layout, depth=self._config.qps, init=[]
        )
        write, read = connections.write_port(), connections.read_port(domain="comb")
        m.d.comb += [
            write.addr.eq(self.attachment.lane),
            write.data.attached.eq(self.attachment.attached),
            write.data.connection.eq(self.attachment.connection),
            write.en.eq(self.attach),
            read.addr.eq(self.release.p.connection),
            self.release.ready.eq(~self.o.valid),
        ]
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(~self.o.valid):
            m.d.sync += [
                self.o.valid.eq(self.release.valid & read.data.attached),
                self.o.p.connection.eq(read.data.connection),
                self.o.p.value.eq(self.release.p.position),
            ]
