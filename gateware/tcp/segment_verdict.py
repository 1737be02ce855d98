"""What a segment means for an established connection: the checks of RFC 9293, 3.10.7.4."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.tcp.layouts import FLAGS, LIMITS, PLACE, SEGMENT
from stagecoach.gateware.tcp.sequence import before, distance


class SegmentVerdict(wiring.Component):
    """Judges a segment by RST, SYN, sequence number and ACK, and cuts its data by the window.

    RST counts with exactly the next number, RST elsewhere in the window and SYN anywhere are
    challenged (RFC 5961, 3.2 and 4.2). A segment that is not acceptable is answered; at a zero
    window its ACK counts if it begins at RCV.NXT (RFC 9293, MUST-66). An ACK that is too old or too
    new is challenged (RFC 5961, 5.2), and the segment dropped; so is one without ACK.

    `segment` is there from the first cycle on, all other inputs from the third one on; they stay.
    `first` and `end` are good from the fifth one on, `fin` and `fin_known` from the seventh one on,
    the others from the sixth one on. Nothing waits. Numbers are compared modulo 2^32; windows have
    at most 2^30 bytes.

    Members
    -------
    segment, place, limits: the segment, and what is known of its connection. live: there is one,
        of a connection that is not dead; without it nothing is said but `first` and `end`.
    acknowledges: its ACK counts. challenge: an ACK answers it, if the limit allows. answer: an ACK
        answers it. reset: it ends the connection. lost: it has data that nobody will read.
    text: its data and FIN count. first, end: numbers of the data from the left edge of the window
        up to its right edge, or to the FIN; nothing if `end` is not after `first`. fin, fin_known:
        those of the place after it: it had the first FIN of the connection that is in the window.
    """

    segment: In(SEGMENT)
    place: In(PLACE)
    limits: In(LIMITS)
    live: In(1)
    acknowledges: Out(1)
    challenge: Out(1)
    answer: Out(1)
    reset: Out(1)
    lost: Out(1)
    text: Out(1)
    first: Out(32)
    end: Out(32)
    fin: Out(32)
    fin_known: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        segment, place, limits = self.segment, self.place, self.limits
        flags = data.View(FLAGS, segment.flags)

        # First and second cycle: the numbers of a segment without SYN.
        end_of_data = Signal(32)
        empty = Signal()
        m.d.sync += [
            end_of_data.eq(segment.sequence + segment.payload),
            empty.eq((segment.payload == 0) & ~flags.fin),
        ]

        # Third cycle: distances of both ends from RCV.NXT, and to the right edge; comparisons.
        ahead, extent, room = Signal(32), Signal(32), Signal(32)
        true_ack, before_edge, past_fin = (Signal() for _ in range(3))
        m.d.sync += [
            ahead.eq(distance(segment.sequence, place.next)),
            extent.eq(distance(end_of_data, place.next)),
            room.eq(distance(place.edge, end_of_data)),
            before_edge.eq(before(segment.sequence, place.edge)),
            true_ack.eq(
                ~before(limits.highest, segment.acknowledgment)
                & ~before(segment.acknowledgment, limits.oldest)
            ),
            past_fin.eq(place.fin_known & before(place.fin, end_of_data)),
        ]

        # Fourth cycle: which numbers are in the window. The last number is that before the end, or
        # the FIN at the end.
        at_next, zero_window, inside, last_inside = (Signal() for _ in range(4))
        extends, fin_inside = Signal(), Signal()
        m.d.sync += [
            at_next.eq(ahead == 0),
            zero_window.eq(place.edge == place.next),
            inside.eq(~ahead[-1] & before_edge),
            last_inside.eq(~extent[-1] & ~room[-1] & Mux(flags.fin, room.any(), extent.any())),
            extends.eq(~extent[-1] & extent.any()),
            fin_inside.eq(~room[-1] & room.any()),
            self.first.eq(Mux(ahead[-1], place.next, segment.sequence)),
            self.end.eq(Mux(past_fin, place.fin, Mux(room[-1], place.edge, end_of_data))),
        ]

        # Fifth cycle: the verdict.
        acceptable = Signal()
        m.d.comb += acceptable.eq(inside | Mux(empty, zero_window & at_next, last_inside))
        acknowledges, challenge, answer, reset, text, lost = (Signal() for _ in range(6))
        with m.If(~self.live):
            pass
        with m.Elif(flags.rst):
            m.d.comb += [reset.eq(at_next), challenge.eq(inside & ~at_next)]
        with m.Elif(flags.syn):
            m.d.comb += challenge.eq(1)
        with m.Elif(acceptable):
            m.d.comb += [
                acknowledges.eq(flags.ack & true_ack),
                challenge.eq(flags.ack & ~true_ack),
                lost.eq(acknowledges & ~place.fin_taken & place.discards & extends),
                text.eq(acknowledges & ~place.fin_taken & ~lost),
            ]
        with m.Elif(zero_window & at_next & flags.ack & ~true_ack):
            m.d.comb += challenge.eq(1)
        with m.Else():
            # Without data it may be the answer to one of ours, and so on for ever (RFC 5961, 7).
            m.d.comb += [
                acknowledges.eq(zero_window & at_next & flags.ack),
                answer.eq(~empty),
                challenge.eq(empty),
            ]
        m.d.sync += [
            self.acknowledges.eq(acknowledges),
            self.challenge.eq(challenge),
            self.answer.eq(answer),
            self.reset.eq(reset),
            self.lost.eq(lost),
            self.text.eq(text),
        ]

        # Sixth cycle: the FIN.
        has_fin = Signal()
        m.d.comb += has_fin.eq(self.text & flags.fin & fin_inside & ~place.fin_known)
        m.d.sync += [
            self.fin.eq(Mux(has_fin, end_of_data, place.fin)),
            self.fin_known.eq(place.fin_known | has_fin),
        ]
        return m
