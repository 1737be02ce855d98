"""From the wire to whole good frames and a record of each: the receive front of the engine."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.frame_input import FrameInput
from stagecoach.gateware.ethernet.frame_store import FrameStore
from stagecoach.gateware.ethernet.layouts import (
    ETHERNET_OCTETS,
    FRAME_WORD,
    AnswersSignature,
    AxiStreamSignature,
    FrameBus,
    FrameFate,
)
from stagecoach.gateware.ip.header import Ipv4Header
from stagecoach.gateware.ip.request_header import RequestHeader
from stagecoach.gateware.ip.responder import Responder
from stagecoach.gateware.ip.segment_sums import SegmentSums
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.gateware.tcp.header import TcpHeader
from stagecoach.gateware.tcp.layouts import SEGMENT

RECORDS = 16
"""Frames in the store at most; the shortest ones arrive no faster than the engine takes them."""


class ReceiveFront(wiring.Component):
    """Checks each frame while it comes, and keeps those that are good, whole.

    A frame that passes all checks of Ethernet, IPv4 and TCP leaves through `frames`, all its words
    from the first byte of Ethernet on, and its record through `segments`, in the same order. ARP
    and IPv4 that is not TCP pass as `raw`. All else is forgotten; `fate` tells of each frame.

    One word per cycle, no cycle between frames, always ready: the wire is never held up. From the
    last word at `rx` to the record 10 cycles, to the first word at `frames` 12. A frame for which
    the store or the list of records has no room is FULL. If nobody takes frames or records, all
    that follow are FULL; if a frame on the wire never ends, nothing else happens here.

    With `answers` the requests that `RequestHeader` knows go to a `Responder` while `enable` is
    high, whether the store has room or not, and then to nobody else; their fate is RAW.

    Parameters
    ----------
    mtu: bytes of the longest IP packet, 576 to 16361.
    store_octets: size of the store, a power of two from 1024 on. Frames longer than it are FULL.
    answers: requests for this station can be answered here.

    Members
    -------
    rx: frames of the MAC. mac: of this station; the first byte is in its lowest bits.
    frames, segments: as said. fate: with `ended`, what became of a frame. answers: if there are.
    """

    def __init__(self, mtu: int = 1500, store_octets: int = 8192, *, answers: bool = False):
        self._mtu = mtu
        self._store_octets = store_octets
        self._answers = answers
        super().__init__(
            {
                "rx": In(AxiStreamSignature()),
                "mac": In(48),
                "frames": Out(stream.Signature(FRAME_WORD)),
                "segments": Out(stream.Signature(SEGMENT)),
                "ended": Out(1),
                "fate": Out(FrameFate),
                **({"answers": In(AnswersSignature())} if answers else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.input = frame_input = FrameInput()
        m.submodules.sums = sums = SegmentSums(icmp=self._answers)
        m.submodules.ip = ip = Ipv4Header(self._mtu)
        m.submodules.tcp = tcp = TcpHeader()
        m.submodules.store = store = FrameStore(self._store_octets)
        m.submodules.records = records = StreamFifo(SEGMENT, RECORDS)
        wiring.connect(m, wiring.flipped(self.rx), frame_input.rx)
        wiring.connect(m, wiring.flipped(self.segments), records.o)
        wiring.connect(m, wiring.flipped(self.frames), store.o)

        # Words wait until the sums of the last one are there. In the stage `counted` their bytes
        # are counted; in `read` the fields are taken from them, and compared; in `judged` all is
        # known of a frame that ends; in `stored` its words go into the store.
        stages = [frame_input.o]
        for number in range(SegmentSums.LATENCY + 1):
            stage = FrameBus().create(path=(f"stage_{number}",))
            m.d.sync += stage.valid.eq(stages[-1].valid)
            with m.If(stages[-1].valid):
                m.d.sync += stage.p.eq(stages[-1].p)
            stages.append(stage)
        counted, read, judged, stored = stages[-4:]
        wiring.connect(m, frame_input.o, sums.i)
        wiring.connect(m, counted, ip.ahead)
        wiring.connect(m, read, ip.i)
        wiring.connect(m, read, tcp.i)
        wiring.connect(m, judged, tcp.previous)
        m.d.comb += [
            ip.mac.eq(self.mac),
            ip.good.eq(sums.ip_good),
            tcp.good.eq(sums.tcp_good),
            tcp.ihl.eq(ip.ihl),
            tcp.total.eq(ip.total),
        ]

        fate = Signal(FrameFate)
        record = Signal(SEGMENT)
        m.d.sync += [
            fate.eq(Mux(ip.fate == FrameFate.SEGMENT, Value.cast(tcp.fate), Value.cast(ip.fate))),
            record.raw.eq(ip.fate == FrameFate.RAW),
            record.octets.eq(ip.octets),
            record.header.eq(ETHERNET_OCTETS + (ip.ihl << 2) + tcp.header),
            record.payload.eq(tcp.payload),
            record.key.local.eq(ip.destination),
            record.key.remote.eq(ip.source),
            record.key.local_port.eq(tcp.destination_port),
            record.key.remote_port.eq(tcp.source_port),
            record.sequence.eq(tcp.sequence),
            record.acknowledgment.eq(tcp.acknowledgment),
            record.flags.eq(tcp.flags),
            record.window.eq(tcp.window),
            record.congestion.eq(ip.congestion),
        ]
        good, room, keep = Signal(), Signal(), Signal()
        asks = Signal()  # it is a request, if it is good
        stays = good & ~asks if self._answers else good
        ends = stored.valid & stored.p.last
        m.d.comb += [
            good.eq((fate == FrameFate.SEGMENT) | (fate == FrameFate.RAW)),
            room.eq(records.i.ready & ~store.full),
            keep.eq(ends & stays & room),
            store.write.eq(stored.valid),
            store.word.data.eq(stored.p.data),
            store.word.last.eq(stored.p.last),
            store.keep.eq(keep),
            records.i.valid.eq(keep),
            records.i.payload.eq(record),
        ]
        m.d.sync += [
            self.ended.eq(ends),
            self.fate.eq(Mux(stays & ~room, Value.cast(FrameFate.FULL), Value.cast(fate))),
        ]
        if self._answers:
            m.submodules.requests = requests = RequestHeader()
            m.submodules.responder = responder = Responder()
            wiring.connect(m, read, requests.i)
            wiring.connect(m, stored, responder.i)
            wiring.connect(m, responder.frame, wiring.flipped(self.answers.frame))
            m.d.sync += asks.eq(requests.asks & self.answers.enable)
            m.d.comb += [
                requests.own.eq(ip.own),
                requests.good.eq(sums.tcp_good),
                requests.address.eq(self.answers.address),
                responder.mac.eq(self.mac),
                responder.address.eq(self.answers.address),
                responder.keep.eq(asks & good),
                self.answers.answered.eq(responder.answered),
                self.answers.dropped.eq(responder.dropped),
            ]
        return m
