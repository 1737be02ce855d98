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

    `start` for a cycle; the inputs stay for two, the verdict is there in the cycle after them and
    stays until the next `start`. Nothing waits. Numbers are compared modulo 2^32; windows have at
    most 2^30 octets.

    Members
    -------
    segment, place, limits: the segment, and what is known of its connection.
    acknowledges: its ACK counts. challenge: an ACK answers it, if the limit allows. answer: an ACK
        answers it. reset: it ends the connection. lost: it has data that nobody will read.
    text: its data and FIN count. first, end: numbers of the data from the left edge of the window
        up to its right edge, or to the FIN; nothing if `end` is not after `first`. sets_fin: its
        FIN is in the window, and the first of the connection. fin: number of the FIN.
    """

    start: In(1)
    segment: In(SEGMENT)
    place: In(PLACE)
    limits: In(LIMITS)
    acknowledges: Out(1)
    challenge: Out(1)
    answer: Out(1)
    reset: Out(1)
    lost: Out(1)
    text: Out(1)
    first: Out(32)
    end: Out(32)
    sets_fin: Out(1)
    fin: Out(32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        segment, place, limits = self.segment, self.place, self.limits
        flags = data.View(FLAGS, segment.flags)

        # First cycle: distances from RCV.NXT, and comparisons.
        length = Signal(len(segment.payload) + 1)
        ahead, last, window = Signal(32), Signal(32), Signal(32)
        true_ack, extends, past_edge, past_fin, fin_inside = (Signal() for _ in range(5))
        end_of_data = Signal(32)
        m.d.comb += [
            length.eq(segment.payload + flags.syn + flags.fin),
            end_of_data.eq(segment.sequence + segment.payload),
        ]
        with m.If(self.start):
            m.d.sync += [
                ahead.eq(distance(segment.sequence, place.next)),
                last.eq(segment.sequence + length - 1 - place.next),
                window.eq(distance(place.edge, place.next)),
                true_ack.eq(
                    ~before(limits.highest, segment.acknowledgment)
                    & ~before(segment.acknowledgment, limits.oldest)
                ),
                extends.eq(before(place.next, end_of_data)),
                past_edge.eq(before(place.edge, end_of_data)),
                past_fin.eq(place.fin_known & before(place.fin, end_of_data)),
                fin_inside.eq(before(end_of_data, place.edge)),
            ]

        # Second cycle.
        second = Signal()
        acceptable, at_next, inside = Signal(), Signal(), Signal()
        zero_window = Signal()
        m.d.comb += [
            at_next.eq(ahead == 0),
            zero_window.eq(window == 0),
            inside.eq(ahead < window),
            acceptable.eq(
                Mux(length == 0, inside | (zero_window & at_next), inside | (last < window))
            ),
        ]
        acknowledges, challenge, answer, reset, text, lost = (Signal() for _ in range(6))
        with m.If(flags.rst):
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
                answer.eq(length != 0),
                challenge.eq(length == 0),
            ]
        m.d.sync += second.eq(self.start)
        with m.If(second):
            m.d.sync += [
                self.acknowledges.eq(acknowledges),
                self.challenge.eq(challenge),
                self.answer.eq(answer),
                self.reset.eq(reset),
                self.lost.eq(lost),
                self.text.eq(text),
                self.first.eq(Mux(ahead[-1], place.next, segment.sequence)),
                self.end.eq(Mux(past_fin, place.fin, Mux(past_edge, place.edge, end_of_data))),
                self.sets_fin.eq(text & flags.fin & fin_inside & ~place.fin_known),
                self.fin.eq(end_of_data),
            ]
        return m
