"""How much the LLP may send: the room in the ring, and in the list of segments."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS
from stagecoach.gateware.tcp.layouts import ring_masks
from stagecoach.gateware.tcp.segment_list import PLACES_BITS
from stagecoach.gateware.tcp.sequence import before, distance, less_than

RESERVED_PLACES = 16
"""Of the list, for what the LLP may send already: while fewer are free, what is queued last waits,
and shares segments."""

GRANTED_SEGMENTS = 7
"""Of the longest, that may be granted: two neighbours that share no segment have more than one
together, and the first one of them may be without a neighbour. It is a power of two less 1."""

assert GRANTED_SEGMENTS == RESERVED_PLACES // 2 - 1


class TransmitGrant(wiring.Component):
    """Decides whether the LLP is granted more: what fits in the ring, and in the places reserved.

    Bytes that were granted stay so. They grow by the longest segment at least. The outputs are
    good four cycles after the inputs, five after `emss`; `crowded`, and what it means for `due`, a
    cycle after `free`. No handshake. Numbers are modulo 2^32.

    Members
    -------
    una, end, granted, emss, size: of the connection. free: places of its list. number: the right
        edge that may be granted. due: it should be. crowded: fewer places are free than are
        reserved.
    """

    una: In(32)
    end: In(32)
    granted: In(32)
    emss: In(OCTETS_BITS)
    size: In(4)
    free: In(PLACES_BITS)
    number: Out(32)
    due: Out(1)
    crowded: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        octets, _ = ring_masks(self.size)
        room, places, growth = Signal(32), Signal(32), Signal(32)
        segments = Signal(OCTETS_BITS + GRANTED_SEGMENTS.bit_length())
        grows = Signal()
        m.d.comb += self.due.eq(grows & ~self.crowded)
        m.d.sync += [
            self.crowded.eq(self.free < RESERVED_PLACES),
            room.eq(self.una + octets),
            segments.eq((self.emss << GRANTED_SEGMENTS.bit_length()) - self.emss),
            places.eq(self.end + segments),
            self.number.eq(Mux(before(room, places), room, places)),
            growth.eq(distance(self.number, self.granted)),
            grows.eq(~growth[-1] & ~less_than(growth, self.emss)),
        ]
        return m
