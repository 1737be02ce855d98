"""Round robin over the QPs that have something to do."""

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpStrobe
from stagecoach.gateware.queues.qp_choice import lowest_bit, several

GROUP = 16
"""QPs that one step of the search looks at; keeps its logic shallow for 256 QPs."""


class Scheduler(wiring.Component):
    """Queues every kicked QP once and offers the queued ones in turn.

    A kick of a QP that is queued changes nothing. A kick in the cycle in which its QP appears at
    `pick`, or later, queues it again, so no kick is lost; a kick in the cycle before may queue it
    once more too. From kick to pick: 5 cycles in an idle scheduler, which it is 2 cycles after the
    last pick appeared. One pick per cycle within
    a group of 16 QPs, 5 cycles from group to group. Between two
    picks of a QP every other queued QP is picked at least once (before the second pick) and at
    most twice. Kicks are never refused; nothing is cleared when a QP is destroyed.

    Parameters
    ----------
    config: sizes of the device.
    kicks: number of kick inputs; each may pulse in any cycle.
    """

    def __init__(self, config: RnicConfig, kicks: int):
        self._config = config
        super().__init__(
            {
                "kicks": In(QpStrobe(config)).array(kicks),
                "pick": Out(stream.Signature(Layouts(config).qp_number)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        qps = self._config.qps
        group_size = min(GROUP, qps)
        groups = qps // group_size
        member_bits = exact_log2(group_size)

        queued = Signal(qps)
        clear = Signal(qps)

        def one_hot(member: Value, group: Value) -> Value:
            """The bit of a QP out of its two halves."""
            chosen = Cat(bit.replicate(group_size) for bit in group)
            return member.replicate(groups) & chosen

        kicked: Value = Const(0, qps)
        kicked_groups: Value = Const(0, groups)
        for i, kick in enumerate(self.kicks):
            # Decoded in two halves and registered: one gate per QP and kick remains. Without a
            # kick no group is chosen, whatever its member is.
            member = Signal(group_size, name=f"member_{i}")
            group = Signal(groups, name=f"group_{i}")
            m.d.sync += [
                member.eq(1 << kick.qp[:member_bits]),
                group.eq(Mux(kick.valid, 1 << kick.qp[member_bits:], 0)),
            ]
            kicked_groups = kicked_groups | group
            kicked = kicked | one_hot(member, group)
        m.d.sync += queued.eq((queued & ~clear) | kicked)

        # Groups with queued QPs, as `queued` is.
        waiting = Signal(groups)
        picked = Signal(group_size)
        picked_group = Signal(groups)
        members = [queued[g * group_size : (g + 1) * group_size] for g in range(groups)]
        m.d.sync += waiting.eq(
            kicked_groups
            | Cat(
                (vector & ~(picked & picked_group[g].replicate(group_size))).any()
                for g, vector in enumerate(members)
            )
        )

        current = Signal(range(max(2, groups)))
        later = Signal(groups)
        m.d.comb += later.eq(Cat(waiting[g] & (g > current) for g in range(groups)))
        next_later = lowest_bit(m, later, "next_later")
        next_any = lowest_bit(m, waiting, "next_any")

        # The members of the current group that still get their pick in this turn.
        turn = Signal(group_size)
        chosen = lowest_bit(m, turn, "chosen")
        lowest = Signal(group_size)  # the same one-hot
        m.d.comb += lowest.eq(Cat(turn[i] & ~turn[:i].any() for i in range(group_size)))
        above = Signal(group_size)  # the members after the last pick
        free = Signal()
        m.d.comb += free.eq(~self.pick.valid | self.pick.ready)
        with m.If(self.pick.ready):
            m.d.sync += self.pick.valid.eq(0)

        # One-hot of what was picked in this cycle, in two halves as the kicks.
        m.d.sync += picked.eq(0)
        m.d.sync += picked_group.eq(1 << current)
        m.d.comb += clear.eq(one_hot(picked, picked_group))

        with m.FSM():
            # Waits until a group has queued QPs; the group after the last one comes first.
            with m.State("FIND"):
                with m.If(later.any()):
                    m.d.sync += current.eq(next_later)
                with m.Elif(waiting.any()):
                    m.d.sync += current.eq(next_any)
                with m.If(waiting.any()):
                    m.next = "COLLECT"
            # Takes the queued QPs of the group: each gets one pick in this turn.
            with m.State("COLLECT"):
                m.d.sync += turn.eq(Array(members)[current])
                m.next = "PICK"
            # Offers one QP after the other.
            with m.State("PICK"):
                with m.If(free):
                    m.d.sync += [
                        self.pick.valid.eq(1),
                        self.pick.payload.qp.eq(
                            Cat(chosen[:member_bits], current[: exact_log2(groups)])
                        ),
                        picked.eq(lowest),
                        turn.eq(turn & ~lowest),
                        above.eq(Cat(turn[:i].any() for i in range(group_size))),
                    ]
                    with m.If(~several(turn)):
                        m.next = "REST"
            # Takes those after the last pick that were queued meanwhile.
            with m.State("REST"):
                m.d.sync += turn.eq(Array(members)[current] & above)
                m.next = "MORE"
            # Were there any?
            with m.State("MORE"):
                m.next = "FIND"
                with m.If(turn.any()):
                    m.next = "PICK"

        return m
