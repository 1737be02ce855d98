"""Whether there is a link, by what its PHY says, and when the MAC has to start again."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

INBAND_STATUS = data.StructLayout({"up": 1, "speed": 2, "full_duplex": 1})
"""What a PHY says between frames (RGMII 2.0, 3.4.1). speed: 0, 1, 2 for 10, 100, 1000 Mb/s."""

GIGABIT = 2

SILENT_CYCLES = 1024
"""Of `sync`, without a change of `activity`: the clock stands still."""

RESET_CHANGES = 8
"""Of `activity`, while the MAC is in reset: its other side has taken the reset then."""

STABLE_CYCLES = 16
"""Of `sync`: what the PHY says counts when it has not changed for so long."""


class LinkWatch(wiring.Component):
    """Tells when frames can be exchanged, and resets the MAC when its clocks cannot be trusted.

    The MAC has a clock of the PHY, which stops or jumps when a link is lost or found. What is in
    its crossings then cannot be trusted, and a reset of one side of a crossing alone makes words
    out of nothing. So both sides are reset together: after the reset of this block; while the
    clock stands still, and until it has run for some time since; when a link is lost; and when the
    PHY tells of another link than that of the last reset. `up` is never 1 together with
    `mac_reset`, and every link that is `up` began with a reset.

    A clock counts as one that runs while `activity` changes at least every `silent_cycles`. A
    clock that stands still for less does no harm by that alone: nothing in the MAC moves.

    A link of another speed than 1,000 Mb/s, or of half duplex, is told by `link`, but is not `up`.

    From what the PHY says of another link it takes 21 cycles, a reset of at least 8 changes of
    `activity`, and 21 cycles more until `link` and `up` tell it. `up` falls 21 cycles after the PHY
    tells of another link or none, or 5 + `silent_cycles` after the last change of `activity`, at
    the latest. It counts nothing, and holds up nobody.

    Parameters
    ----------
    silent_cycles: `SILENT_CYCLES` of a device; 2 and more.

    Members
    -------
    activity: changes as often as the PHY's clock runs, every few of its cycles; asynchronous.
    status: what the PHY says; asynchronous.
    link: what it has said since the reset; with `link.up`, there is a link of any kind.
    up: frames of 1,000 Mb/s can be exchanged. mac_reset: of both sides of the MAC.
    """

    def __init__(self, silent_cycles: int = SILENT_CYCLES):
        if silent_cycles < 2:
            raise ValueError(f"LinkWatch silent_cycles is {silent_cycles!r}; allowed: 2 and more")
        self._silent_cycles = silent_cycles
        super().__init__(
            {
                "activity": In(1),
                "status": In(INBAND_STATUS),
                "link": Out(INBAND_STATUS),
                "up": Out(1),
                "mac_reset": Out(1, init=1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        link, up, reset = self.link, self.up, self.mac_reset

        # The clock
        activity, before, changed = Signal(), Signal(), Signal()
        silence = Signal(range(self._silent_cycles + 1))
        m.submodules.activity = FFSynchronizer(self.activity, activity)
        m.d.comb += changed.eq(activity != before)
        m.d.sync += before.eq(activity)
        runs = silence != 0  # cycles are left until it counts as one that stands still
        with m.If(changed):
            m.d.sync += silence.eq(self._silent_cycles)
        with m.Elif(runs):
            m.d.sync += silence.eq(silence - 1)

        # What the PHY says; its bits may come in different cycles
        status, earlier = Signal(INBAND_STATUS), Signal(INBAND_STATUS)
        age = Signal(range(STABLE_CYCLES + 1))
        m.submodules.status = FFSynchronizer(self.status.as_value(), status.as_value())
        m.d.sync += [earlier.eq(status), age.eq(age + (age != STABLE_CYCLES))]
        with m.If(reset | (status != earlier)):
            m.d.sync += age.eq(0)
        stable = age == STABLE_CYCLES

        changes = Signal(range(RESET_CHANGES + 1))
        heard = Signal(INBAND_STATUS)
        known = Signal(INBAND_STATUS)  # the link that the last reset was for
        is_known = heard == known
        useful = (heard.speed == GIGABIT) & heard.full_duplex
        lost = up & ~is_known
        found = heard.up & ~is_known
        with m.FSM():
            with m.State("Reset"):  # waits for a clock that runs
                with m.If(~runs):
                    m.d.sync += changes.eq(0)
                with m.Elif(changes == RESET_CHANGES):
                    m.d.sync += reset.eq(0)
                    m.next = "Watch"
                with m.Elif(changed):
                    m.d.sync += changes.eq(changes + 1)
            with m.State("Watch"):  # waits for another link, or for the clock to stop
                with m.If(stable):
                    m.d.sync += heard.eq(earlier)
                with m.If(is_known | ~heard.up):
                    m.d.sync += [link.eq(heard), up.eq(heard.up & useful)]
                with m.If(lost | found | ~runs):
                    m.d.sync += [reset.eq(1), changes.eq(0), known.eq(0)]
                    m.d.sync += [up.eq(0), link.eq(0), heard.eq(0)]
                    with m.If(found):
                        m.d.sync += known.eq(heard)
                    m.next = "Reset"
        return m
