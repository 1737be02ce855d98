"""Remembers which QPs had a failed access to host memory, and stops them."""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind, QpStrobe
from stagecoach.gateware.queues.qp_errors import QpErrors
from stagecoach.hw.interface.causes import Cause

PLACEMENTS_AHEAD = 64
"""Placements that may wait for their write responses."""

ROOM_MARGIN = 3
"""Placements that may begin and do not count in `room` yet: one every two cycles, the last one a
cycle after `room` fell."""


class FailedQps(wiring.Component):
    """One bit for each QP: set by `fail`, cleared by `forget`; each new failure is an error.

    `failed` follows `fail` by one cycle, so it is there before anything that the failed access
    lets go. Failures of one QP become one error of `QpErrors`.

    Parameters
    ----------
    config: sizes of the device. cause: cause of the errors.
    """

    def __init__(self, config: RnicConfig, cause: Cause):
        self._config = config
        self._cause = cause
        super().__init__(
            {
                "fail": In(QpStrobe(config)),
                "forget": In(QpStrobe(config)),
                "failed": Out(config.qps),
                "error": Out(stream.Signature(Layouts(config).qp_error)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.errors = errors = QpErrors(self._config, self._cause)
        wiring.connect(m, wiring.flipped(self.fail), errors.fail)
        wiring.connect(m, wiring.flipped(self.forget), errors.forget)
        wiring.connect(m, errors.error, wiring.flipped(self.error))
        with m.If(self.forget.valid):
            m.d.sync += self.failed.bit_select(self.forget.qp, 1).eq(0)
        with m.If(self.fail.valid):
            m.d.sync += self.failed.bit_select(self.fail.qp, 1).eq(1)
        return m


class HostErrors(wiring.Component):
    """Turns failed host memory accesses of payload into errors of their QPs.

    A failed read is known when the FPDU leaves (`read_failed`). A failed write is known by the
    response to a placement: `placement_begun` brings the QP of each placement with bytes in
    order, `placement_done` with `placement_error` its response, 4 cycles later at the earliest.
    `room` is low while too many placements wait for their responses: one may begin in the cycle in
    which it falls or in the next one, and none from then on; one every two cycles.
    No access may fail in the first `config.qps` cycles after a reset.

    Members
    -------
    read_failures, write_failures: a bit for each QP, from the failure until CREATE or CONNECT;
        from two cycles after `placement_done` on.
    read_error, write_error: for `queues/qp_states.py`.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        layouts = Layouts(config)
        super().__init__(
            {
                "read_failed": In(QpStrobe(config)),
                "placement_begun": In(QpStrobe(config)),
                "placement_done": In(1),
                "placement_error": In(1),
                "room": Out(1, init=1),
                "command_taken": In(1),
                "command": In(layouts.qp_command),
                "read_failures": Out(config.qps),
                "write_failures": Out(config.qps),
                "read_error": Out(stream.Signature(layouts.qp_error)),
                "write_error": Out(stream.Signature(layouts.qp_error)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.reads = reads = FailedQps(config, Cause.HOST_READ_ERROR)
        m.submodules.writes = writes = FailedQps(config, Cause.HOST_WRITE_ERROR)
        m.submodules.owners = owners = SyncFIFOBuffered(
            width=config.qp_bits, depth=PLACEMENTS_AHEAD
        )
        placed, failure = Signal(), Signal()
        m.d.comb += owners.r_en.eq(placed)
        # All are a cycle late, so that no path leads from one block through here to the next.
        m.d.sync += [
            owners.w_data.eq(self.placement_begun.qp),
            owners.w_en.eq(self.placement_begun.valid),
            placed.eq(self.placement_done),
            failure.eq(self.placement_done & self.placement_error),
            self.room.eq(owners.level <= PLACEMENTS_AHEAD - ROOM_MARGIN),
        ]
        fresh = Signal()
        fresh_qp = Signal(config.qp_bits)
        m.d.sync += [
            fresh.eq(
                self.command_taken
                & Cat(
                    self.command.kind == kind
                    for kind in (QpCommandKind.CREATE, QpCommandKind.CONNECT)
                ).any()
            ),
            fresh_qp.eq(self.command.qp),
        ]
        for block, valid, qp, failures, error in (
            (
                reads,
                self.read_failed.valid,
                self.read_failed.qp,
                self.read_failures,
                self.read_error,
            ),
            (
                writes,
                failure,
                owners.r_data,
                self.write_failures,
                self.write_error,
            ),
        ):
            m.d.comb += [
                block.fail.valid.eq(valid),
                block.fail.qp.eq(qp),
                block.forget.valid.eq(fresh),
                block.forget.qp.eq(fresh_qp),
                failures.eq(block.failed),
            ]
            wiring.connect(m, block.error, wiring.flipped(error))
        return m
