"""The segment that is sent: which bytes it has, and whether it goes."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS
from stagecoach.gateware.tcp.layouts import FLAGS, SendKind, fpdu_layout, send_job
from stagecoach.gateware.tcp.segment_list import (
    PLACES_BITS,
    SEGMENTS,
    SegmentList,
    SegmentOperation,
)
from stagecoach.gateware.tcp.send_window import SendMode, SendWindow
from stagecoach.gateware.tcp.sequence import distance, less_than
from stagecoach.gateware.tcp.transmit_plan import TO_DO
from stagecoach.gateware.tcp.transmit_state import TRANSMIT_STATE


class TransmitSegment(wiring.Component):
    """Holds the lists of segments, and says what is sent of one as the windows allow.

    While the list is `crowded`, the last segment waits for others to join it, if anything is
    outstanding.

    `state` is there a cycle before the other inputs. They are held for five cycles, and until the
    job is taken, but `limit` for two cycles; the outputs are good in the sixth one, those of the
    list in the fourth one. Of `bare` and of a segment that `answers`, which have nothing of the
    list, `job` is good at once. No handshake. Numbers are modulo 2^32.

    Parameters
    ----------
    connections: 2 to 256.

    Members
    -------
    connection, state: of the event. work: what it asks for. operation, number, take: of
        `SegmentList`. octets: that are appended. of_fpdu: they are the `fpdu`. limit: bytes that
        may be outstanding. crowded, outstanding: as said. bare: one byte is sent, or FIN alone,
        whatever the window is. answers: a segment without data is. stored: its payload is in the
        store.
    segments_after, more, free: of `SegmentList`. job: the segment. fpdu_alone: it is the FPDU.
        sent: bytes of it. sends, whole, following, advances: as those of `SendWindow`. ends:
        nothing waits after it.
    """

    def __init__(self, connections: int):
        self._connections = connections
        bits = (connections - 1).bit_length()
        super().__init__(
            {
                "connection": In(bits),
                "state": In(TRANSMIT_STATE),
                "work": In(TO_DO),
                "operation": In(SegmentOperation),
                "number": In(32),
                "take": In(1),
                "octets": In(OCTETS_BITS),
                "of_fpdu": In(1),
                "fpdu": In(fpdu_layout(bits)),
                "limit": In(32),
                "crowded": In(1),
                "outstanding": In(1),
                "bare": In(1),
                "answers": In(1),
                "stored": In(1),
                "segments_after": Out(SEGMENTS),
                "more": Out(1),
                "free": Out(PLACES_BITS),
                "job": Out(send_job(bits)),
                "sends": Out(1),
                "fpdu_alone": Out(1),
                "sent": Out(OCTETS_BITS),
                "whole": Out(1),
                "following": Out(32),
                "advances": Out(1),
                "ends": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers, windows, to_do = self.state.numbers, self.state.windows, self.work
        m.submodules.list = segments = SegmentList(self._connections)
        m.submodules.window = window = SendWindow()

        most = Signal(OCTETS_BITS)  # of a segment that goes again: what was sent
        sent = Signal(32)
        m.d.sync += [
            sent.eq(distance(numbers.max, numbers.una)),
            most.eq(Mux(less_than(sent, numbers.emss), sent, numbers.emss)),
        ]
        m.d.comb += [
            segments.connection.eq(self.connection),
            segments.operation.eq(self.operation),
            segments.number.eq(self.number),
            segments.take.eq(self.take),
            segments.end.eq(numbers.end),
            segments.octets.eq(self.octets),
            segments.whole.eq(self.of_fpdu),
            segments.segments.eq(self.state.path.segments),
            segments.most.eq(Mux(self.operation == SegmentOperation.RESEND, most, numbers.emss)),
            window.mode.eq(
                Mux(
                    to_do.resends,
                    Value.cast(SendMode.AGAIN),
                    Mux(to_do.probes, Value.cast(SendMode.PROBE), SendMode.NEW),
                )
            ),
            window.una.eq(numbers.una),
            window.number.eq(self.number),
            window.highest.eq(numbers.max),
            window.end.eq(numbers.end),
            window.closing.eq(numbers.closing),
            window.limit.eq(self.limit),
            window.window.eq(windows.window),
            window.max_window.eq(windows.max_window),
            window.full.eq(segments.sent),
            self.segments_after.eq(segments.segments_after),
            self.more.eq(segments.more),
            self.free.eq(segments.free),
            self.sent.eq(window.octets),
            self.whole.eq(window.whole),
            self.following.eq(window.following),
            self.advances.eq(window.advances),
        ]

        m.d.sync += window.held.eq(self.crowded & self.outstanding & ~numbers.closing)
        m.d.comb += [
            self.sends.eq(window.sends),
            self.fpdu_alone.eq(self.of_fpdu & window.last & (window.octets == self.fpdu.octets)),
            self.ends.eq(window.last & (window.fin | ~numbers.closing)),
        ]

        octets = Mux(self.bare, window.some, window.octets)
        some = ~self.answers & octets.any()
        flags = {
            "ack": C(1),
            "rst": self.answers & to_do.resets,
            "psh": some & Mux(self.bare, window.one, window.last),
            "fin": ~self.answers & Mux(self.bare, ~window.some, window.fin),
        }
        payload = Mux(self.stored, Value.cast(SendKind.STORE), SendKind.RING)
        m.d.comb += [
            self.job.connection.eq(self.connection),
            self.job.kind.eq(Mux(some, payload, SendKind.NOTHING)),
            self.job.sequence.eq(Mux(self.answers, numbers.max, self.number)),
            self.job.octets.eq(Mux(self.answers, 0, octets)),
            self.job.sum.eq(self.fpdu.sum),
            self.job.flags.eq(Cat(*(flags.get(name, C(0)) for name in FLAGS.members))),
            self.job.blocks.eq(self.answers & ~to_do.resets),
            self.job.needed.eq(~self.answers | to_do.resets | to_do.insists),
        ]
        return m
