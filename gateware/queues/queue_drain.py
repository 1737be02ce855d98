"""Tells for each item of a queue when all has ended that had begun before it came."""

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.queues.drain import COUNT_BITS


class QueueDrain(wiring.Component):
    """A drain for a queue whose items each wait for the operations that began before they came.

    Operations end in the order in which they began, so each of them is accounted to the first item
    that waits for it: `share` is the number of operations under way that the item which comes is
    the first to wait for; the queue keeps it beside the item. An operation that ends is accounted
    to the items that came and did not leave yet; when it began after all of them, it is accounted
    to nobody, and forgotten. At the head, `missing` is what is left of the shares of the head and
    of all before it, less what has ended: negative by the operations that items after the head
    need not wait for any more.

    So no count goes on with operations that nobody waits for, however long the head is held and
    whatever ends meanwhile. A share is at most what may be under way, 2^`count_bits` - 1, and
    `missing` lies between that and -`depth` times that.

    Nothing waits for this block, and it waits for nothing.

    Parameters
    ----------
    depth: items that may have come and not been loaded.
    count_bits: width of a share.

    Members
    -------
    begun: In(count_bits), the operations that have begun before the item that comes, mod
        2^`count_bits`; looked at with `mark` only.
    end: In(1), pulses for each operation that ends; that of one that begins after an item comes
        after the item.
    mark: In(1), an item comes.
    share: Out(count_bits), its share, in the same cycle, by a subtraction.
    load, loaded: In(1), In(count_bits), the item before has left, and this is the share of the one
        at the head now.
    missing: Out, signed: operations that the head has to wait for, all if it is not positive; from
        the cycle after `load` on. It counts an `end` in the next cycle.
    """

    def __init__(self, depth: int, count_bits: int = COUNT_BITS):
        if depth < 1:
            raise ValueError(f"depth is {depth!r}; allowed: 1 or more")
        if count_bits < 1:
            raise ValueError(f"count_bits is {count_bits!r}; allowed: 1 or more")
        self._count_bits = count_bits
        # From -depth * most to most
        self._missing = signed(((depth << count_bits) - 1).bit_length() + 1)
        super().__init__(
            {
                "begun": In(count_bits),
                "end": In(1),
                "mark": In(1),
                "share": Out(count_bits),
                "load": In(1),
                "loaded": In(count_bits),
                "missing": Out(self._missing),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ended = Signal(self._count_bits)
        following = Signal(self._count_bits, init=1)  # ended + 1
        # Operations in shares, and those that were forgotten: `ended` never passes it.
        accounted = Signal(self._count_bits)
        settled = Signal(init=1)  # it is `ended`
        owed, forgotten = Signal(), Signal()
        m.d.comb += [
            owed.eq(self.end & ~settled),
            forgotten.eq(self.end & settled),
            self.share.eq(self.begun - accounted - forgotten),
        ]
        m.d.sync += self.missing.eq(self.missing + Mux(self.load, self.loaded, 0) - owed)
        with m.If(self.end):
            m.d.sync += [ended.eq(following), following.eq(following + 1)]
        with m.If(self.mark):
            m.d.sync += [
                accounted.eq(self.begun),
                settled.eq(self.begun == Mux(self.end, following, ended)),
            ]
        with m.Else():
            m.d.sync += [
                accounted.eq(accounted + forgotten),
                settled.eq(settled | (self.end & (accounted == following))),
            ]
        return m
