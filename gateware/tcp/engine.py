"""The TCP engine: established connections between a wire, rings in memory and the LLP port."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_WIDTH, RnicConfig
from stagecoach.gateware.dma.axi import connect_axi
from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.gateware.dma.read import ReadEngine
from stagecoach.gateware.dma.write import WriteEngine
from stagecoach.gateware.ethernet.frame_output import FrameOutput
from stagecoach.gateware.ethernet.layouts import HOST_RING, AxiStreamSignature, FrameFate
from stagecoach.gateware.ethernet.raw_receive import RawReceive
from stagecoach.gateware.ethernet.raw_transmit import RawTransmit
from stagecoach.gateware.mpa.ports import LlpSignature
from stagecoach.gateware.stream.fork import Fork
from stagecoach.gateware.tcp.builder import HeaderRow
from stagecoach.gateware.tcp.connection_counts import ConnectionCounts
from stagecoach.gateware.tcp.connection_info import ConnectionInfo
from stagecoach.gateware.tcp.driver_notices import DriverNotices
from stagecoach.gateware.tcp.engine_fence import EngineFence
from stagecoach.gateware.tcp.layouts import (
    DEADLINE,
    TRANSMIT_SETTINGS,
    attachment_layout,
    receive_command,
    received_segment,
    release_layout,
    settled_layout,
    transmit_command,
)
from stagecoach.gateware.tcp.lookup import SECRET_BITS, lookup_command, lookup_result
from stagecoach.gateware.tcp.notice_gate import NoticeGate
from stagecoach.gateware.tcp.receive_side import ReceiveSide
from stagecoach.gateware.tcp.transmit_info import INFO_PLACE_BITS
from stagecoach.gateware.tcp.transmit_path import TransmitPath

READ_BEATS = 512
"""Words that wait for a segment that is sent again, and for an answer of the LLP port: at one per
cycle, what a memory with a latency of 250 cycles is asked for meanwhile."""

STORE_OCTETS = 8192
LONG_STORE_OCTETS = 32_768
"""For received frames, two of the longest and more."""


class TcpEngine(wiring.Component):
    """Joins `ReceiveSide`, `TransmitPath`, the raw queues, and the engines of one memory port.

    Latencies are those of the blocks. Who waits for whom, if a neighbour never goes on:

    * The driver takes no notice, or frees no place: notices wait, one for each connection and kind;
      frames for it are dropped. Nothing else waits.
    * The MAC takes nothing: frames wait, then segments, FPDUs and events of the sending side, and
      with those what is received, which is then dropped as FULL.
    * Memory answers nothing, or takes nothing: segments and frames wait at their rings, and then
      everything does.
    * Answers to ARP and echo requests, with `config.answers`, wait for the MAC alone, at most for a
      segment and a frame of the driver; each of the three sources of frames gets its turn.
    * The device takes no answer of the LLP port: answers wait, and nothing else. If it takes no
      event, everything waits.

    Words of a command to the write engine wait for nothing that another client of it waits for: a
    frame that is received, and an FPDU, are whole on the chip before their job is given out; the
    ring of what is received and `RawReceive` have the words of one frame after the other, and the
    words of the frame before are all in the registers of its client when one for `RawReceive`
    begins; an entry of the network queue is in registers. The gate before `RawReceive` may close
    between frames, where no command of it waits for words.

    Parameters
    ----------
    config: sizes of the device: as many connections as QPs. Its `data_width` is 64.
    mtu: bytes of the longest IP packet.

    Members
    -------
    rx, tx: frames of the MAC. t_axi: rings, slots, descriptors and frames. llp: the LLP port.
    mac, secret, fate_read, value, lookup, lookup_done, placed, receive_command, release, urgent: as
        those of `ReceiveSide`; `receive_command` is its `command`. time, settings, header_write,
        header_connection, header_row, header_word, transmit_command: of `TransmitPath`, likewise.
        deadline: its `earliest`.
    attachment: streams that are attached, and detached.
    begun, begun_edge: a pulse, all have taken the note of a connection that begins: a BEGIN of its
        sending side, and then an attachment, may follow; and the right edge of its window.
    fence_start, fence_busy: of `EngineFence`.
    info_done: a pulse, the words of an INFO are there. info_word, info: of `ConnectionInfo`.
    info_read: for which connection its words are that INFO does not keep.
    answer, address, answered, unanswered: `enable`, `address`, `answered` and `dropped` of
        `AnswersSignature`, if `config.answers`.
    queue, slots, queue_consumer, slot_consumer, receive_enable, receive_idle, interrupt, dropped:
        of `RawReceive`. frames, producer, consumer, transmit_enable, transmit_idle, refused: of
        `RawTransmit`. failed: a pulse, of one of both, or both.
    """

    def __init__(self, config: RnicConfig | None = None, mtu: int = 1500):
        self._config = config = config or RnicConfig()
        if config.data_width != WORD_WIDTH:
            raise ValueError(f"TcpEngine data_width is {config.data_width!r}; allowed: 64")
        self._mtu = mtu
        bits = config.qp_bits
        super().__init__(
            {
                "rx": In(AxiStreamSignature()),
                "tx": Out(AxiStreamSignature()),
                "t_axi": Out(AxiSignature()),
                "llp": In(LlpSignature(config)),
                "time": In(32),
                "settings": In(TRANSMIT_SETTINGS),
                "deadline": Out(DEADLINE),
                "mac": In(48),
                "secret": In(SECRET_BITS),
                "fate_read": In(FrameFate),
                "value": Out(32),
                "header_write": In(1),
                "header_connection": In(bits),
                "header_row": In(HeaderRow),
                "header_word": In(64),
                "receive_command": In(stream.Signature(receive_command(bits))),
                "transmit_command": In(stream.Signature(transmit_command(bits))),
                "lookup": In(stream.Signature(lookup_command(bits))),
                "lookup_done": Out(stream.Signature(lookup_result(bits))),
                "placed": In(stream.Signature(received_segment(bits))),
                "release": In(stream.Signature(release_layout(bits))),
                "attachment": In(stream.Signature(attachment_layout(bits))),
                "begun": Out(1),
                "begun_edge": Out(32),
                "fence_start": In(1),
                "fence_busy": Out(1),
                "info_done": Out(1),
                "info_word": In(INFO_PLACE_BITS),
                "info": Out(32),
                "info_read": In(bits),
                "answer": In(1),
                "address": In(32),
                "answered": Out(1),
                "unanswered": Out(1),
                "urgent": Out(1),
                "queue": In(HOST_RING),
                "slots": In(HOST_RING),
                "frames": In(HOST_RING),
                "queue_consumer": In(16),
                "slot_consumer": In(16),
                "producer": In(16),
                "consumer": Out(16),
                "receive_enable": In(1),
                "transmit_enable": In(1),
                "receive_idle": Out(1),
                "transmit_idle": Out(1),
                "interrupt": Out(1),
                "dropped": Out(1),
                "refused": Out(1),
                "failed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, mtu = self._config, self._mtu
        store_octets = STORE_OCTETS if 2 * mtu < STORE_OCTETS else LONG_STORE_OCTETS
        m.submodules.receive = self.receive = ReceiveSide(config, mtu, store_octets)
        m.submodules.transmit = self.transmit = TransmitPath(config, mtu)
        m.submodules.raw_receive = self.raw_receive = RawReceive(mtu)
        m.submodules.raw_transmit = self.raw_transmit = RawTransmit(mtu)
        m.submodules.notices = self.notices = DriverNotices(config.qps)
        m.submodules.gate = self.gate = NoticeGate()
        self._connect_sides(m)
        self._connect_llp(m)
        self._connect_memory(m)
        self._connect_driver(m)
        self._connect_commands(m)
        return m

    def _connect_sides(self, m: Module) -> None:
        """What one side says to the other, and the wire."""
        receive, transmit = self.receive, self.transmit
        m.submodules.notes = notes = Fork(settled_layout(self._config.qp_bits), 2)
        m.submodules.output = output = FrameOutput(2 + self._config.answers)
        for source, sink in (
            (receive.event, transmit.ack),
            (receive.failed, transmit.failed),
            (receive.note, notes.i),
            (notes.o[0], transmit.note),
            (notes.o[1], self.notices.note),
            (transmit.said, receive.sender),
            (transmit.ask, receive.ask),
            (transmit.frame, output.frames[0]),
            (self.raw_transmit.frame, output.frames[1]),
        ):
            wiring.connect(m, source, sink)
        wiring.connect(m, wiring.flipped(self.rx), receive.rx)
        wiring.connect(m, output.tx, wiring.flipped(self.tx))
        if self._config.answers:
            wiring.connect(m, receive.answers.frame, output.frames[2])
            m.d.comb += [
                receive.answers.enable.eq(self.answer),
                receive.answers.address.eq(self.address),
                self.answered.eq(receive.answers.answered),
                self.unanswered.eq(receive.answers.dropped),
            ]
        m.d.comb += [
            receive.limits_write.eq(transmit.limits_write),
            receive.limits_connection.eq(transmit.limits_connection),
            receive.limits.eq(transmit.limits),
            receive.connection_read.eq(transmit.connection_read),
            transmit.settled.eq(receive.settled),
            receive.asked.eq(transmit.asked),
            transmit.out_of_order.eq(receive.out_of_order),
            transmit.ranges.eq(receive.ranges),
        ]

    def _connect_llp(self, m: Module) -> None:
        receive, store, llp = self.receive, self.transmit.tx, self.llp
        request, release, event = receive.llp_request, receive.llp_release, receive.llp_event
        attaches = self.attachment.valid & self.attachment.ready
        wiring.connect(m, wiring.flipped(self.attachment), receive.attachment)
        m.d.comb += [
            *(part.attach.eq(attaches) for part in (self.transmit, self.notices)),
            *(
                part.attachment.eq(self.attachment.payload)
                for part in (self.transmit, self.notices)
            ),
            store.valid.eq(llp.tx_valid),
            llp.tx_ready.eq(store.ready),
            *(
                store.p[name].eq(getattr(llp, f"tx_{name}"))
                for name in ("connection", "data", "octets", "first", "last", "close")
            ),
            request.valid.eq(llp.rx_request_valid),
            llp.rx_request_ready.eq(request.ready),
            *(
                request.p[name].eq(getattr(llp, f"rx_request_{name}"))
                for name in ("connection", "position", "octets")
            ),
            llp.rx_valid.eq(receive.llp_answer.valid),
            llp.rx_data.eq(receive.llp_answer.payload),
            receive.llp_answer.ready.eq(llp.rx_ready),
            release.valid.eq(llp.rx_release_valid),
            llp.rx_release_ready.eq(release.ready),
            *(
                release.p[name].eq(getattr(llp, f"rx_release_{name}"))
                for name in ("connection", "position")
            ),
            llp.event_valid.eq(event.valid),
            event.ready.eq(llp.event_ready),
            *(
                getattr(llp, f"event_{name}").eq(event.p[name])
                for name in ("connection", "kind", "value")
            ),
        ]

    def _connect_memory(self, m: Module) -> None:
        """Frames and descriptors of the driver are taken as they come: they need no buffer."""
        m.submodules.read_engine = read_engine = ReadEngine(
            self._config, (READ_BEATS, READ_BEATS, 0)
        )
        m.submodules.write_engine = write_engine = WriteEngine(self._config, clients=3)
        readers = (self.receive.read, self.transmit.read, self.raw_transmit.read)
        for reader, client in zip(readers, read_engine.clients, strict=True):
            wiring.connect(m, reader, client)
        writers = (self.receive.write, self.transmit.write, self.raw_receive.write)
        for writer, client in zip(writers, write_engine.clients, strict=True):
            wiring.connect(m, writer, client)
        connect_axi(m, wiring.flipped(self.t_axi), read_engine.m_axi, write_engine.m_axi)

    def _connect_driver(self, m: Module) -> None:
        """Frames both ways, and what the driver is told."""
        raw_receive, raw_transmit, notices = self.raw_receive, self.raw_transmit, self.notices
        for source, sink in (
            (self.receive.raw, self.gate.i),
            (self.gate.o, raw_receive.raw),
            (self.transmit.notice, notices.notice),
            (notices.o, raw_receive.notice),
        ):
            wiring.connect(m, source, sink)
        m.d.comb += [
            self.gate.waits.eq(self.transmit.notices_wait | notices.waits),
            self.gate.offered.eq(notices.o.valid),
            raw_receive.enable.eq(self.receive_enable),
            self.receive_idle.eq(raw_receive.idle),
            raw_transmit.enable.eq(self.transmit_enable),
            self.transmit_idle.eq(raw_transmit.idle),
            raw_transmit.queue.eq(self.frames),
            raw_transmit.producer.eq(self.producer),
            self.consumer.eq(raw_transmit.consumer),
            self.refused.eq(raw_transmit.refused),
            self.failed.eq(raw_receive.failed | raw_transmit.failed),
            *(
                getattr(raw_receive, name).eq(getattr(self, name))
                for name in ("queue", "slots", "queue_consumer", "slot_consumer")
            ),
            *(
                getattr(self, name).eq(getattr(raw_receive, name))
                for name in ("interrupt", "dropped")
            ),
        ]

    def _connect_commands(self, m: Module) -> None:
        """Commands, what is set for all connections, INFO, and the fence."""
        receive, transmit = self.receive, self.transmit
        m.submodules.info = info = ConnectionInfo()
        m.submodules.counts = counts = ConnectionCounts(self._config.qps)
        m.submodules.fence = fence = EngineFence(self._config.qps)
        for port, inner in (
            (self.receive_command, receive.command),
            (self.transmit_command, transmit.command),
            (self.lookup, receive.lookup),
            (self.lookup_done, receive.lookup_done),
            (self.placed, receive.placed),
            (self.release, receive.release),
        ):
            wiring.connect(m, wiring.flipped(port), inner)
        m.d.comb += [
            *(
                getattr(receive, name).eq(getattr(self, name))
                for name in ("mac", "secret", "fate_read")
            ),
            self.value.eq(receive.value),
            self.urgent.eq(receive.urgent),
            self.begun.eq(receive.begun),
            self.begun_edge.eq(receive.begun_edge),
            *(getattr(transmit, name).eq(getattr(self, name)) for name in ("time", "settings")),
            *(
                getattr(transmit, f"header_{name}").eq(getattr(self, f"header_{name}"))
                for name in ("write", "connection", "row", "word")
            ),
            self.deadline.eq(transmit.earliest),
            *(
                getattr(info, name).eq(getattr(transmit, f"info_{name}"))
                for name in ("write", "place", "word")
            ),
            info.settled.eq(self.notices.settled),
            info.read.eq(self.info_word),
            self.info.eq(info.value),
            self.info_done.eq(transmit.info_done),
            self.notices.connection_read.eq(self.info_read),
            *(
                getattr(counts, name).eq(getattr(side, name))
                for side, names in (
                    (receive, ("received", "received_connection")),
                    (transmit, ("sent", "again", "sent_connection")),
                )
                for name in names
            ),
            counts.connection.eq(self.info_read),
            counts.count.eq(info.count),
            info.counted.eq(counts.word),
            info.shown.eq(counts.shown),
            fence.start.eq(self.fence_start),
            self.fence_busy.eq(fence.busy),
            *(
                getattr(fence, f"{side}_{what}").eq(getattr(getattr(self, side), what))
                for side in ("receive", "transmit")
                for what in ("began", "ended")
            ),
        ]
