"""What the last INFO told of a connection, to be read word by word."""

from amaranth.hdl import Module, Mux
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.tcp.transmit_info import INFO_PLACE_BITS, SENDING_WORDS
from stagecoach.hw.interface.network_entries import CONNECTION_INFO

assert [field.name for field in CONNECTION_INFO[SENDING_WORDS:]] == ["received"]


class ConnectionInfo(wiring.Component):
    """Keeps the words of the sending side, and has that of the receiving side after them.

    A word is at `value` a cycle after its number is at `read`. Nothing waits; no counter.

    Members
    -------
    write, place, word: of `TransmitInfo`. settled: RCV.NXT.
    read, value: a word of `CONNECTION_INFO`; those after the last one mean nothing.
    """

    write: In(1)
    place: In(INFO_PLACE_BITS)
    word: In(32)
    settled: In(32)
    read: In(INFO_PLACE_BITS)
    value: Out(32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(shape=32, depth=1 << INFO_PLACE_BITS, init=[])
        kept, found = words.write_port(), words.read_port(domain="comb")
        m.d.comb += [
            kept.addr.eq(self.place),
            kept.data.eq(self.word),
            kept.en.eq(self.write),
            found.addr.eq(self.read),
        ]
        m.d.sync += self.value.eq(Mux(self.read < SENDING_WORDS, found.data, self.settled))
        return m
