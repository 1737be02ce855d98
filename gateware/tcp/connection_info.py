"""What the last INFO told of a connection, to be read word by word."""

from amaranth.hdl import Module, Mux
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.tcp.connection_counts import Count
from stagecoach.gateware.tcp.transmit_info import INFO_PLACE_BITS, SENDING_WORDS
from stagecoach.hw.interface.network_entries import CONNECTION_INFO

_KEPT_BITS = (SENDING_WORDS - 1).bit_length()

_COUNTS = SENDING_WORDS + 1
"""The first word that is a count."""

assert CONNECTION_INFO[SENDING_WORDS].name == "received"
assert [field.name for field in CONNECTION_INFO[_COUNTS:]] == [
    f"segments_{count.name.lower()}" for count in Count
]


class ConnectionInfo(wiring.Component):
    """Keeps the words of the sending side, and has that of the receiving side and counts after
    them.

    A word is at `value` a cycle after its number is at `read`; a count when it was shown, which
    takes two cycles more at most. Nothing waits; no counter.

    Members
    -------
    write, place, word: of `TransmitInfo`. settled: RCV.NXT.
    count: which one is read. counted, shown: the count that was asked for a cycle ago, if it is.
    read, value: a word of `CONNECTION_INFO`; those after the last one mean nothing.
    """

    write: In(1)
    place: In(INFO_PLACE_BITS)
    word: In(32)
    settled: In(32)
    count: Out(Count)
    counted: In(32)
    shown: In(1)
    read: In(INFO_PLACE_BITS)
    value: Out(32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(shape=32, depth=1 << _KEPT_BITS, init=[])
        kept, found = words.write_port(), words.read_port(domain="comb")
        counts = self.read >= _COUNTS
        m.d.comb += [
            kept.addr.eq(self.place),
            kept.data.eq(self.word),
            kept.en.eq(self.write),
            found.addr.eq(self.read),
            self.count.eq(self.read - _COUNTS),
        ]
        with m.If(~counts | self.shown):
            m.d.sync += self.value.eq(
                Mux(
                    counts,
                    self.counted,
                    Mux(self.read < SENDING_WORDS, found.data, self.settled),
                )
            )
        return m
