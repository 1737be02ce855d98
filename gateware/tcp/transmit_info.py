"""What INFO tells of a connection that sends, word by word."""

from amaranth.hdl import C, Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.tcp.transmit_state import TRANSMIT_STATE
from stagecoach.hw.interface.network_entries import CONNECTION_INFO, InfoFlags

SENDING_WORDS = [field.name for field in CONNECTION_INFO].index("edge") + 1
"""Of `CONNECTION_INFO`: those that the sending side knows come first."""

INFO_PLACE_BITS = (len(CONNECTION_INFO) - 1).bit_length()


class TransmitInfo(wiring.Component):
    """Gives the words of a state, one in each cycle, from the second cycle after `begin` on.

    `state` stays from `begin` until `done`, which comes with the last word. Nothing waits.

    Members
    -------
    state: of the connection. begin: a pulse, not while words leave.
    write, place, word: a word of `CONNECTION_INFO`, and which one. done: as said.
    """

    state: In(TRANSMIT_STATE)
    begin: In(1)
    write: Out(1)
    place: Out(INFO_PLACE_BITS)
    word: Out(32)
    done: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers, rto = self.state.numbers, self.state.times.rto
        congestion = self.state.path.congestion
        flags = {
            InfoFlags.ALIVE: numbers.alive,
            InfoFlags.ATTACHED: numbers.attached,
            InfoFlags.CLOSING: numbers.closing,
            InfoFlags.FIN_ACKNOWLEDGED: numbers.fin_acknowledged,
            InfoFlags.PEER_FIN: numbers.peer_fin,
            InfoFlags.SAMPLED: rto.sampled,
        }
        words: dict[str, Value] = {
            **{name: numbers[name] for name in ("una", "next", "max", "end", "emss")},
            "window": self.state.windows.window,
            **{name: congestion[name] for name in ("cwnd", "ssthresh")},
            "srtt8": rto.srtt8,
            "rttvar4": rto.rttvar4,
            "rto": rto.timeout,
            "flags": Cat(flags.get(flag, C(0, 1)) for flag in InfoFlags),
            "edge": self.state.windows.edge,
        }
        number = Signal(range(SENDING_WORDS))
        goes = Signal()
        with m.Switch(number):
            for place, field in enumerate(CONNECTION_INFO[:SENDING_WORDS]):
                with m.Case(place):
                    m.d.sync += self.word.eq(words[field.name])
        m.d.sync += [self.place.eq(number), self.write.eq(goes), self.done.eq(0)]
        with m.If(self.begin):
            m.d.sync += [goes.eq(1), number.eq(0)]
        with m.Elif(goes):
            m.d.sync += number.eq(number + 1)
            with m.If(number == SENDING_WORDS - 1):
                m.d.sync += [goes.eq(0), self.done.eq(1)]
        return m
