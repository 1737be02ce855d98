"""Joins one AXI master to two slaves, of which each has the addresses on one side of a boundary."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_WIDTH
from stagecoach.gateware.dma.axi import AxiReadSignature, AxiWriteSignature, channel_payload
from stagecoach.gateware.dma.read import MAX_OUTSTANDING_BURSTS as READ_BURSTS
from stagecoach.gateware.dma.write import MAX_OUTSTANDING_BURSTS as WRITE_BURSTS

ADDRESSES = 1 << 64


class RouterTurn(wiring.Component):
    """Says whether a burst may go to its side: not while bursts of the other side are under way.

    `may` stays 1, as long as `to_above` stays, until a burst begins.

    Parameters
    ----------
    bursts: that are under way at most.

    Members
    -------
    to_above: the side of the burst that waits. may: it may go there.
    begins: it does; it may. ends: one of those under way was answered.
    above: the side of those under way, or of the latest one.
    """

    def __init__(self, bursts: int):
        self._bursts = bursts
        super().__init__(
            {
                "to_above": In(1),
                "may": Out(1),
                "begins": In(1),
                "ends": In(1),
                "above": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        under_way = Signal(range(self._bursts + 1))
        same_side = self.above == self.to_above
        m.d.comb += self.may.eq((under_way == 0) | (same_side & (under_way != self._bursts)))
        m.d.sync += under_way.eq(under_way + self.begins - self.ends)
        with m.If(self.begins):
            m.d.sync += self.above.eq(self.to_above)
        return m


class AxiReadRouter(wiring.Component):
    """AR and R of a master, to the slave that has the address.

    Addresses below the boundary go to `below`, all others to `above`, unchanged. A burst has to end
    on the side on which it begins, as one within 4 KiB does; whether a slave has the address is the
    slave's affair.

    Bursts are under way on one side at a time: one for the other side waits until all are answered.
    So answers come in the order of the bursts, and R of a slave waits for nobody but the master:
    others at the same slave do not wait for what this master reads from the other one. A change of
    side costs the latency of the side that is left; bursts on one side follow each other without a
    gap. A master of one ID whose bursts were sent to both sides at once would have the words of the
    fast side no sooner if it asked the slow one first.

    Nothing is added to the latency: ARVALID and RVALID go through in the same cycle, as READY goes
    back. If a slave does not answer, or does not take a burst, all later bursts of this master
    wait, those for the other side, too, for ever if need be.

    Parameters
    ----------
    boundary: first address of `above`, from 1 on. data_width, id_width: of all ports.

    Members
    -------
    axi: the master. Answers to bursts of one ID come in order if each slave answers so.
    below, above: the slaves. At most 128 bursts are outstanding.
    """

    def __init__(self, boundary: int, data_width: int = WORD_WIDTH, id_width: int = 1):
        self._boundary = _checked("AxiReadRouter", boundary)
        port = AxiReadSignature(data_width, id_width)
        super().__init__({"axi": In(port), "below": Out(port), "above": Out(port)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi, below, above = self.axi, self.below, self.above
        m.submodules.turn = turn = RouterTurn(READ_BURSTS)
        m.d.comb += [
            turn.to_above.eq(axi.araddr >= self._boundary),
            turn.begins.eq(axi.arvalid & axi.arready),
            turn.ends.eq(axi.rvalid & axi.rready & axi.rlast),
            axi.arready.eq(turn.may & Mux(turn.to_above, above.arready, below.arready)),
        ]
        for slave, offered in ((below, ~turn.to_above), (above, turn.to_above)):
            m.d.comb += [
                channel_payload(slave, "ar").eq(channel_payload(axi, "ar")),
                slave.arvalid.eq(axi.arvalid & turn.may & offered),
            ]
        _answers(m, "r", turn.above, axi, below, above)
        return m


class AxiWriteRouter(wiring.Component):
    """AW, W and B of a master, to the slave that has the address.

    As `AxiReadRouter`: by the boundary, with bursts under way on one side at a time, from the cycle
    in which AW is offered to the slave until B.

    Words wait until the address of their burst is offered to its slave, not until that takes it: a
    slave may take the two in any order. AWVALID does not wait for WVALID. Nothing is added to the
    latency but one cycle to the first word if it comes in the cycle of its address. If a slave does
    not answer, all later bursts of this master wait.

    Parameters
    ----------
    boundary: first address of `above`, from 1 on. data_width, id_width: of all ports.

    Members
    -------
    axi: the master; words are in the order of the addresses.
    below, above: the slaves. At most 32 bursts are outstanding.
    """

    def __init__(self, boundary: int, data_width: int = WORD_WIDTH, id_width: int = 1):
        self._boundary = _checked("AxiWriteRouter", boundary)
        port = AxiWriteSignature(data_width, id_width)
        super().__init__({"axi": In(port), "below": Out(port), "above": Out(port)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi, below, above = self.axi, self.below, self.above
        m.submodules.turn = turn = RouterTurn(WRITE_BURSTS)
        noted = Signal()  # the address that waits counts as under way
        shown = Signal()
        owed = Signal(range(WRITE_BURSTS + 1))  # bursts whose words have not all come
        due = Signal()
        m.d.comb += [
            turn.to_above.eq(axi.awaddr >= self._boundary),
            shown.eq(noted | turn.may),
            turn.begins.eq(axi.awvalid & turn.may & ~noted),
            turn.ends.eq(axi.bvalid & axi.bready),
            axi.awready.eq(shown & Mux(turn.to_above, above.awready, below.awready)),
            due.eq(owed != 0),
            axi.wready.eq(due & Mux(turn.above, above.wready, below.wready)),
        ]
        m.d.sync += owed.eq(owed + turn.begins - (axi.wvalid & axi.wready & axi.wlast))
        with m.If(axi.awvalid & shown):
            m.d.sync += noted.eq(~axi.awready)
        for slave, offered, has_bursts in (
            (below, ~turn.to_above, ~turn.above),
            (above, turn.to_above, turn.above),
        ):
            m.d.comb += [
                channel_payload(slave, "aw").eq(channel_payload(axi, "aw")),
                slave.awvalid.eq(axi.awvalid & shown & offered),
                channel_payload(slave, "w").eq(channel_payload(axi, "w")),
                slave.wvalid.eq(axi.wvalid & due & has_bursts),
            ]
        _answers(m, "b", turn.above, axi, below, above)
        return m


def _checked(name: str, boundary: int) -> int:
    """Return the boundary, which has addresses on both sides."""
    if not 0 < boundary < ADDRESSES:
        raise ValueError(f"{name} boundary is {boundary!r}; allowed: 1 to 2^64 - 1")
    return boundary


def _answers(m: Module, channel: str, of_above: Any, axi: Any, below: Any, above: Any) -> None:
    """Join R or B of the master to that of the slave that has the bursts under way."""
    valid, ready = f"{channel}valid", f"{channel}ready"
    m.d.comb += [
        channel_payload(axi, channel).eq(
            Mux(of_above, channel_payload(above, channel), channel_payload(below, channel))
        ),
        getattr(axi, valid).eq(Mux(of_above, getattr(above, valid), getattr(below, valid))),
        getattr(below, ready).eq(getattr(axi, ready) & ~of_above),
        getattr(above, ready).eq(getattr(axi, ready) & of_above),
    ]
