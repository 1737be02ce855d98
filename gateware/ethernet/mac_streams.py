"""Frames between the device and the streams of LiteEth's MAC."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import AxiStreamSignature


class LiteEthSignature(wiring.Signature):
    """A stream of LiteEth with words of 64 bits, seen from the sender.

    `last_be` has one bit for the last byte in the last word of a frame, and is 0 in all other
    words. Of a received word its lowest bit counts; bits of `last_be` and `error` above that are
    left over from words before.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "ready": In(1),
                "data": Out(64),
                "last": Out(1),
                "last_be": Out(8),
                "error": Out(8),
            }
        )


class MacStreams(wiring.Component):
    """Joins the device's ports for frames with those of the MAC, and keeps to whole frames.

    One word per cycle in both directions; latency is one cycle to the device and none to the MAC.
    To the device nothing waits: its port is always ready, and `rx.tready` is not looked at. To the
    MAC a frame waits as long as the MAC does, which has a clock of its own, and takes a word in at
    most every 64 ns on average.

    While there is no link, frames of the device are taken and discarded, so that nothing of the
    device waits for a link; and nothing is received. When the link is lost, the frame that the
    device is sending is discarded to its end, though its beginning may be on the wire. The one
    that it is receiving ends with a word of one byte and `tuser`. When there is a link again, both
    directions begin with the first word of a frame: of one that the MAC was receiving before that
    nothing is handed on.

    Only a MAC in reset, or one without a link, sees `mac_tx.valid` fall before `ready`.

    `discarded` counts the device's frames that were not sent, or not to their end, when the last
    word of one is taken; it wraps at 2^32.

    Members
    -------
    tx, rx: of the device. `tx.tuser` has no effect: the MAC cannot send a frame as a bad one.
    mac_tx, mac_rx: of the MAC.
    up: there is a link, for frames of both directions. mac_reset: the MAC is in reset, and has
    forgotten what it has received; not together with `up`.
    discarded: frames.
    """

    tx: In(AxiStreamSignature())
    rx: Out(AxiStreamSignature())
    mac_tx: Out(LiteEthSignature())
    mac_rx: In(LiteEthSignature())
    up: In(1)
    mac_reset: In(1)
    discarded: Out(32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._transmit(m)
        self._receive(m)
        return m

    def _transmit(self, m: Module) -> None:
        tx, mac = self.tx, self.mac_tx
        was_open = Signal()  # in a frame
        is_open = Signal()  # and after this word
        cut = Signal()  # in a frame whose beginning was lost, or sent before a link was lost
        passes = self.up & ~cut
        moves = tx.tvalid & tx.tready
        m.d.comb += [
            mac.valid.eq(tx.tvalid & passes),
            tx.tready.eq(mac.ready | ~passes),
            mac.data.eq(tx.tdata),
            mac.last.eq(tx.tlast),
            is_open.eq(Mux(moves, ~tx.tlast, was_open)),
        ]
        with m.If(tx.tlast):
            m.d.comb += mac.last_be.eq(tx.tkeep & ~(tx.tkeep >> 1))
        m.d.sync += [
            was_open.eq(is_open),
            cut.eq(is_open & (cut | ~self.up)),
        ]
        with m.If(moves & tx.tlast & ~passes):
            m.d.sync += self.discarded.eq(self.discarded + 1)

    def _receive(self, m: Module) -> None:
        rx, mac = self.rx, self.mac_rx
        within = Signal()  # the MAC is in a frame
        handed = Signal()  # and what it had of it went to the device
        keep = Signal(8)
        m.d.comb += [
            mac.ready.eq(1),
            keep.eq(Cat(~mac.last_be[:lane].any() if lane else 1 for lane in range(8))),
        ]
        passes = mac.valid & self.up & (handed | ~within)
        with m.If(mac.valid):
            m.d.sync += within.eq(~mac.last)
        with m.If(self.mac_reset):
            m.d.sync += within.eq(0)
        m.d.sync += [
            rx.tvalid.eq(passes),
            rx.tdata.eq(mac.data),
            rx.tkeep.eq(Mux(mac.last, keep, 0xFF)),
            rx.tlast.eq(mac.last),
            rx.tuser.eq(mac.last & (mac.error & keep).any()),
        ]
        with m.If(passes):
            m.d.sync += handed.eq(~mac.last)
        with m.If(~self.up):
            m.d.sync += handed.eq(0)
            with m.If(handed):
                m.d.sync += [rx.tvalid.eq(1), rx.tkeep.eq(1), rx.tlast.eq(1), rx.tuser.eq(1)]
