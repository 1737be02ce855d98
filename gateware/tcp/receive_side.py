"""The receiving side of the TCP engine: from the wire to rings in memory, and to the LLP port."""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ethernet.frame_counters import FrameCounters
from stagecoach.gateware.ethernet.layouts import (
    RAW_WORD,
    AnswersSignature,
    AxiStreamSignature,
    FrameFate,
)
from stagecoach.gateware.host_memory import ReadClient, WriteClient
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.stream.fork import Fork
from stagecoach.gateware.stream.merge import Merge
from stagecoach.gateware.tcp.demultiplexer import Demultiplexer
from stagecoach.gateware.tcp.layouts import (
    FLAGS,
    LIMITS,
    ack_event,
    attachment_layout,
    receive_command,
    received_segment,
    release_layout,
    sender_event,
    settled_layout,
)
from stagecoach.gateware.tcp.llp_events import LlpEvents
from stagecoach.gateware.tcp.llp_receive import LlpReceive
from stagecoach.gateware.tcp.lookup import (
    SECRET_BITS,
    SLOTS_BITS,
    lookup_command,
    lookup_result,
)
from stagecoach.gateware.tcp.places import RECEIVE_PLACES, offered
from stagecoach.gateware.tcp.ranges import ranges_layout
from stagecoach.gateware.tcp.receive_front import ReceiveFront
from stagecoach.gateware.tcp.receive_path import ReceivePath
from stagecoach.gateware.tcp.settle import SETTLED

MANY_CONNECTIONS = 64
"""Above it the lookup has twice as many slots (docs/tcp-engine.md, "Decisions")."""


class ReceiveSide(wiring.Component):
    """Joins `ReceiveFront`, `Demultiplexer`, `ReceivePath`, `LlpEvents` and `LlpReceive`.

    `rx` is always ready. If memory, `raw`, `event` or `note` is not taken, or the device takes no
    `llp_event`, frames wait in the store, and are FULL when that has no room. Requests of the
    device wait for the answers of memory and for `llp_answer`, and for nothing of the wire.

    From the last word of a frame of 1,500 bytes to RX_AVAILABLE at most 230 cycles, beside what
    memory takes. A frame without payload every 10 cycles: the shortest ones come in 10.5.

    Parameters
    ----------
    config: sizes of the device: as many connections as QPs. mtu: bytes of the longest IP packet.
    store_octets: of `ReceiveFront`.

    Members
    -------
    rx, mac: of `ReceiveFront`. fate_read, value: of `FrameCounters`.
    secret, lookup, lookup_done, placed: of `Demultiplexer`: `command` and `done` are the middle.
    command, limits_write, limits_connection, limits, event, asked, out_of_order, ask, ranges,
        write, raw, connection_read, settled: of `ReceivePath`. note: its `o`.
    release: of the driver.
    sender: of `LlpEvents`. attachment: of it, and of `LlpReceive`, which has it when it is offered.
    llp_event, llp_request, llp_answer, llp_release: of the LLP port.
    read, failed: of `LlpReceive`. answers: of `ReceiveFront`, if the device is to have them.
    begun, begun_edge: a pulse, all have taken the note of a connection that begins; and the right
        edge of its window.
    received, received_connection: a pulse, a segment of a connection is done, one of SEGMENT, too.
    urgent: a pulse, it has URG.
    began, ended: pulses, something begins and ends in a place.
    """

    def __init__(self, config: RnicConfig | None = None, mtu: int = 1500, store_octets: int = 8192):
        self._config = config = config or RnicConfig()
        self._mtu, self._store_octets = mtu, store_octets
        mpa, bits = MpaLayouts(config), config.qp_bits
        super().__init__(
            {
                "rx": In(AxiStreamSignature()),
                "mac": In(48),
                "fate_read": In(FrameFate),
                "value": Out(32),
                "secret": In(SECRET_BITS),
                "lookup": In(stream.Signature(lookup_command(bits))),
                "lookup_done": Out(stream.Signature(lookup_result(bits))),
                "placed": In(stream.Signature(received_segment(bits))),
                "command": In(stream.Signature(receive_command(bits))),
                "release": In(stream.Signature(release_layout(bits))),
                "limits_write": In(1),
                "limits_connection": In(bits),
                "limits": In(LIMITS),
                "event": Out(stream.Signature(ack_event(bits))),
                "asked": In(bits),
                "out_of_order": Out(1),
                "ask": In(stream.Signature(bits)),
                "ranges": Out(ranges_layout()),
                "write": Out(WriteClient()),
                "raw": Out(stream.Signature(RAW_WORD)),
                "note": Out(stream.Signature(settled_layout(bits))),
                "connection_read": In(bits),
                "settled": Out(SETTLED),
                "sender": In(stream.Signature(sender_event(bits))),
                "attachment": In(stream.Signature(attachment_layout(bits))),
                "llp_event": Out(stream.Signature(Layouts(config).llp_event)),
                "llp_request": In(stream.Signature(mpa.rx_request)),
                "llp_answer": Out(stream.Signature(64)),
                "llp_release": In(stream.Signature(mpa.rx_release)),
                "read": Out(ReadClient()),
                "failed": Out(stream.Signature(bits)),
                "begun": Out(1),
                "begun_edge": Out(32),
                "received": Out(1),
                "received_connection": Out(bits),
                "urgent": Out(1),
                "began": Out(RECEIVE_PLACES),
                "ended": Out(RECEIVE_PLACES),
                **({"answers": In(AnswersSignature())} if config.answers else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, bits = self._config, self._config.qp_bits
        slots_bits = SLOTS_BITS + (config.qps > MANY_CONNECTIONS)
        m.submodules.front = front = ReceiveFront(
            self._mtu, self._store_octets, answers=config.answers
        )
        m.submodules.counters = counters = FrameCounters()
        m.submodules.demultiplexer = demultiplexer = Demultiplexer(config.qps, slots_bits)
        m.submodules.path = path = ReceivePath(config.qps, self._mtu)
        m.submodules.releases = releases = Merge(release_layout(bits), 2)
        m.submodules.notes = notes = Fork(settled_layout(bits), 2)
        m.submodules.llp_events = llp_events = LlpEvents(config)
        m.submodules.llp_receive = llp_receive = LlpReceive(config)

        # What passes between them.
        for output, taker in (
            (front.segments, demultiplexer.i),
            (front.frames, path.frames),
            (demultiplexer.o, path.segment),
            (releases.o, path.release),
            (path.o, notes.i),
            (notes.o[0], llp_events.settled),
            (llp_receive.o, releases.i[0]),
        ):
            wiring.connect(m, output, taker)

        # What passes through.
        for port, inner in (
            (self.rx, front.rx),
            (self.lookup, demultiplexer.command),
            (self.lookup_done, demultiplexer.done),
            (self.placed, demultiplexer.placed),
            *((getattr(self, name), getattr(path, name)) for name in ("command", "event", "ask")),
            *((getattr(self, name), getattr(path, name)) for name in ("write", "raw")),
            (self.release, releases.i[1]),
            (self.note, notes.o[1]),
            (self.sender, llp_events.sender),
            (self.attachment, llp_events.attachment),
            (self.llp_event, llp_events.event),
            (self.llp_request, llp_receive.request),
            (self.llp_answer, llp_receive.answer),
            (self.llp_release, llp_receive.release),
            (self.read, llp_receive.read),
            (self.failed, llp_receive.failed),
            *([(self.answers, front.answers)] if config.answers else []),
        ):
            wiring.connect(m, wiring.flipped(port), inner)
        segment = demultiplexer.o
        m.d.comb += [
            front.mac.eq(self.mac),
            counters.valid.eq(front.ended),
            counters.fate.eq(front.fate),
            counters.fate_read.eq(self.fate_read),
            self.value.eq(counters.value),
            demultiplexer.secret.eq(self.secret),
            path.limits_write.eq(self.limits_write),
            path.limits_connection.eq(self.limits_connection),
            path.limits.eq(self.limits),
            path.asked.eq(self.asked),
            self.out_of_order.eq(path.out_of_order),
            self.ranges.eq(path.ranges),
            path.connection_read.eq(self.connection_read),
            self.settled.eq(path.settled),
            # Before the first event of its stream.
            llp_receive.attach.eq(offered(m, self.attachment)),
            llp_receive.attachment.eq(self.attachment.payload),
            self.begun.eq(self.ended.note & path.o.p.note.begin),
            self.begun_edge.eq(path.o.p.note.edge),
            self.received.eq(self.ended.segment & segment.p.found & ~segment.p.segment.raw),
            self.received_connection.eq(segment.p.connection),
            self.urgent.eq(self.received & data.View(FLAGS, segment.p.segment.flags).urg),
            self.began.ack.eq(path.queued),
            self.began.write.eq(path.began),
            self.ended.write.eq(path.ended),
            self.ended.request.eq(llp_receive.answered),
        ]
        for name, port in (
            ("segment", demultiplexer.o),
            ("note", path.o),
            ("release", llp_receive.o),
            ("merged", releases.o),
            ("llp_event", llp_events.event),
        ):
            m.d.comb += [
                self.began[name].eq(offered(m, port)),
                self.ended[name].eq(port.valid & port.ready),
            ]
        m.d.comb += [
            self.began.request.eq(self.llp_request.valid & self.llp_request.ready),
            self.ended.ack.eq(self.event.valid & self.event.ready),
        ]
        return m
