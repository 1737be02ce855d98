"""From FPDUs and events to frames: the sending side."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ethernet.layouts import FRAME_BEAT
from stagecoach.gateware.host_memory import ReadClient, WriteClient
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.tcp.builder import Builder, HeaderRow
from stagecoach.gateware.tcp.layouts import (
    DEADLINE,
    LIMITS,
    TRANSMIT_SETTINGS,
    TransmitOperation,
    ack_event,
    attachment_layout,
    notice_layout,
    sender_event,
    settled_layout,
    transmit_command,
)
from stagecoach.gateware.tcp.pending import Pending
from stagecoach.gateware.tcp.places import TRANSMIT_PLACES
from stagecoach.gateware.tcp.ranges import ranges_layout
from stagecoach.gateware.tcp.ring_reader import RingReader
from stagecoach.gateware.tcp.segment_store import SegmentStore
from stagecoach.gateware.tcp.settle import SETTLED
from stagecoach.gateware.tcp.timers import Timers
from stagecoach.gateware.tcp.transmit_info import INFO_PLACE_BITS
from stagecoach.gateware.tcp.transmit_processor import TransmitProcessor
from stagecoach.gateware.tcp.transmit_ring import TransmitRing


class TransmitPath(wiring.Component):
    """Joins `SegmentStore`, `TransmitProcessor`, `Timers`, `TransmitRing`, `RingReader`, `Builder`.

    Latencies are those of the blocks. Notices and failures wait in a place for each connection
    (`Pending`), so neither a driver that takes none nor a ring that cannot be read stops the
    processor. `said` has no such place: while nobody takes it, nothing is sent. While `frame` or
    `ask` is not taken, or memory does not answer, segments wait, then everything does.

    Who gives the number of a connection that has ended to a new one waits before until nothing of
    it is under way: its segments, its FPDUs, its writes. `began` and `ended` tell of those. A BEGIN
    follows the note of the receiving side's, which makes `settled` the new one's.

    After a reset all connections are forgotten, for as many cycles as there are connections.

    Parameters
    ----------
    config: sizes of the device: a lane for each of its QPs, and as many connections.
    mtu: bytes of the longest IP packet.

    Members
    -------
    time, settings, ack, note, command, said, notice, limits_write, limits_connection, limits: of
        the processor; a BEGIN gives the reader its ring, too. failed: connections of which other
        blocks could not read or write a ring.
    tx, attach, attachment: of the store. write, read: of memory. earliest: of the timers.
    header_write, header_connection, header_row, header_word: `write`, `connection`, `row` and
        `word` of the builder, and connection_read, settled, asked, out_of_order, ask, ranges,
        frame as there.
    info_write, info_place, info_word, info_done: of the processor.
    sent, again, sent_connection: of the builder.
    notices_wait: some do, from the cycle after the processor had told of one.
    began, ended: pulses, something begins and ends in a place.
    """

    def __init__(self, config: RnicConfig, mtu: int = 1500):
        self._config = config
        self._mtu = mtu
        bits = config.qp_bits
        super().__init__(
            {
                "time": In(32),
                "settings": In(TRANSMIT_SETTINGS),
                "tx": In(stream.Signature(MpaLayouts(config).tx)),
                "attach": In(1),
                "attachment": In(attachment_layout(bits)),
                "ack": In(stream.Signature(ack_event(bits))),
                "note": In(stream.Signature(settled_layout(bits))),
                "command": In(stream.Signature(transmit_command(bits))),
                "failed": In(stream.Signature(bits)),
                "said": Out(stream.Signature(sender_event(bits))),
                "notice": Out(stream.Signature(notice_layout(bits))),
                "limits_write": Out(1),
                "limits_connection": Out(bits),
                "limits": Out(LIMITS),
                "earliest": Out(DEADLINE),
                "write": Out(WriteClient()),
                "read": Out(ReadClient()),
                "header_write": In(1),
                "header_connection": In(bits),
                "header_row": In(HeaderRow),
                "header_word": In(64),
                "connection_read": Out(bits),
                "settled": In(SETTLED),
                "asked": Out(bits),
                "out_of_order": In(1),
                "ask": Out(stream.Signature(bits)),
                "ranges": In(ranges_layout()),
                "frame": Out(stream.Signature(FRAME_BEAT)),
                "info_write": Out(1),
                "info_place": Out(INFO_PLACE_BITS),
                "info_word": Out(32),
                "info_done": Out(1),
                "sent": Out(1),
                "again": Out(1),
                "sent_connection": Out(bits),
                "notices_wait": Out(1),
                "began": Out(TRANSMIT_PLACES),
                "ended": Out(TRANSMIT_PLACES),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, mtu, connections = self._config, self._mtu, self._config.qps
        m.submodules.store = store = SegmentStore(config, mtu)
        m.submodules.processor = processor = TransmitProcessor(connections, mtu)
        m.submodules.timers = timers = Timers(connections)
        m.submodules.ring = ring = TransmitRing(connections)
        m.submodules.reader = reader = RingReader(config, mtu)
        m.submodules.builder = builder = Builder(connections)
        m.submodules.notices = notices = Pending(connections, notice_layout(config.qp_bits))
        m.submodules.failures = failures = Pending(
            connections, data.StructLayout({"connection": config.qp_bits})
        )
        for owner, names in (
            (store, ("tx",)),
            (processor, ("ack", "note", "command", "said")),
            (builder, ("ask", "frame")),
            (ring, ("write",)),
            (reader, ("read",)),
        ):
            for name in names:
                wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(owner, name))
        wiring.connect(m, processor.notice, notices.i)
        wiring.connect(m, notices.o, wiring.flipped(self.notice))
        for source, sink in (
            (store.fpdu, processor.fpdu),
            (processor.fate, store.fate),
            (processor.job, ring.job),
            (store.ring, ring.words),
            (processor.send, reader.job),
            (reader.o, builder.job),
            (reader.words, builder.ring),
            (store.segment, builder.store),
            (timers.due, processor.due),
        ):
            wiring.connect(m, source, sink)

        # What failed: one of them at a time, and whoever says it goes on.
        m.d.comb += [
            processor.failed.valid.eq(failures.o.valid),
            processor.failed.payload.eq(failures.o.p.connection),
            failures.o.ready.eq(processor.failed.ready),
        ]
        with m.If(ring.failed.valid):
            _hand(m, ring.failed, failures.i)
        with m.Elif(reader.failed.valid):
            _hand(m, reader.failed, failures.i)
        with m.Else():
            _hand(m, self.failed, failures.i)

        command = self.command.p
        m.d.comb += [
            store.attach.eq(self.attach),
            store.attachment.eq(self.attachment),
            *(part.time.eq(self.time) for part in (processor, timers)),
            processor.settings.eq(self.settings),
            timers.write.eq(processor.deadlines_write),
            timers.connection.eq(processor.deadlines_connection),
            timers.deadlines.eq(processor.deadlines),
            self.earliest.eq(timers.earliest),
            *(
                getattr(self, name).eq(getattr(processor, name))
                for name in (
                    *("limits_write", "limits_connection", "limits"),
                    *("info_write", "info_place", "info_word", "info_done"),
                )
            ),
            self.notices_wait.eq(notices.waits),
            ring.connection_read.eq(reader.connection_read),
            *(
                getattr(reader, name).eq(getattr(ring, name))
                for name in ("stored", "lost", "known")
            ),
            reader.write.eq(
                self.command.valid
                & self.command.ready
                & (command.operation == TransmitOperation.BEGIN)
            ),
            reader.connection.eq(command.connection),
            reader.ring.address.eq(command.ring),
            reader.ring.size.eq(command.size),
            builder.write.eq(self.header_write),
            builder.connection.eq(self.header_connection),
            builder.row.eq(self.header_row),
            builder.word.eq(self.header_word),
            self.connection_read.eq(builder.connection_read),
            builder.settled.eq(self.settled),
            self.asked.eq(builder.asked),
            builder.out_of_order.eq(self.out_of_order),
            builder.ranges.eq(self.ranges),
            *(
                getattr(self, name).eq(getattr(builder, name))
                for name in ("sent", "again", "sent_connection")
            ),
        ]
        job = processor.job
        for name, begins, ends in (
            ("fpdu", store.queued, store.fpdu.valid & store.fpdu.ready),
            (
                "write",
                job.valid & job.ready & (~job.p.fpdu | (job.p.octets != 0)),
                ring.left,
            ),
            ("event", processor.began, processor.ended),
            ("send", processor.queued, reader.job.valid & reader.job.ready),
            ("segment", reader.queued, reader.left),
            ("failure", failures.began, failures.o.valid & failures.o.ready),
        ):
            m.d.comb += [self.began[name].eq(begins), self.ended[name].eq(ends)]
        return m


def _hand(m: Module, source: Any, sink: Any) -> None:
    """A connection, as an item."""
    m.d.comb += [
        sink.valid.eq(source.valid),
        sink.p.connection.eq(source.payload),
        source.ready.eq(sink.ready),
    ]
