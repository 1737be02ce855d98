"""Knows the state and the first error of every QP."""

from amaranth import Array, Module, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.interfaces import Layouts, QpCommandKind, QpStrobe
from hw.interface.causes import Cause


class QpState(enum.Enum, shape=unsigned(2)):
    """State of a QP."""

    RESET = 0
    INIT = 1
    RTS = 2
    ERROR = 3


class QpStates(wiring.Component):
    """Moves QPs from state to state and turns the first error of each into an event.

    CREATE -> INIT; CONNECT in INIT -> RTS; STOP in INIT or RTS -> ERROR with cause
    STOPPED_BY_DRIVER and without an event; DESTROY -> RESET. A command out of place changes
    nothing. The first error of a QP in INIT or RTS -> ERROR, and the error is handed on at
    `event`; errors of QPs in RESET or ERROR are swallowed. Commands, and the error inputs in
    turn, are taken one every 4 cycles; only an `event` that is not ready holds them up.

    A QP of which `running` is set is in RTS. It may send (`may_send`) from CONNECT on if it is the
    initiator, else from its first received segment on (RFC 5044, 7.1.2): `first_segment` may pulse
    for this one and for any later segment. `released` pulses when `may_send` rises, in either way.
    A command is taken (`ready`) in the cycle before the vectors show its effect. They follow an
    error 4 cycles after it was taken, and `first_segment` after 2.

    `query_state` and `query_cause` are those of `query_qp` two cycles ago.

    Parameters
    ----------
    config: sizes of the device.
    errors: number of error inputs.
    """

    def __init__(self, config: RnicConfig, errors: int):
        self._config = config
        layouts = Layouts(config)
        self._error = layouts.qp_error
        super().__init__(
            {
                "errors": In(stream.Signature(layouts.qp_error)).array(errors),
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "first_segment": In(QpStrobe(config)),
                "running": Out(config.qps),
                "may_send": Out(config.qps),
                "released": Out(QpStrobe(config)),
                "event": Out(stream.Signature(layouts.qp_error)),
                "query_qp": In(config.qp_bits),
                "query_state": Out(QpState),
                "query_cause": Out(8),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        layout = data.StructLayout({"state": QpState, "cause": 8})
        m.submodules.states = states = Memory(shape=layout, depth=config.qps, init=[])
        read, write, query = states.read_port(), states.write_port(), states.read_port()
        m.d.comb += query.addr.eq(self.query_qp)
        m.d.sync += [self.query_state.eq(query.data.state), self.query_cause.eq(query.data.cause)]

        # The responder's first segment, decoded and compared in one cycle, set in the next.
        segment = Signal(QpStrobe(config).members["qp"].shape)
        segment_new = Signal()
        held_back = self.running & ~self.may_send
        m.d.sync += [
            segment.eq(self.first_segment.qp),
            segment_new.eq(
                self.first_segment.valid & held_back.bit_select(self.first_segment.qp, 1)
            ),
        ]
        release = Signal()
        release_qp = Signal(config.qp_bits)
        stop = Signal()

        qp = Signal(config.qp_bits)
        with m.If(stop):
            m.d.sync += [
                self.running.bit_select(qp, 1).eq(0),
                self.may_send.bit_select(qp, 1).eq(0),
            ]
        with m.If(release):
            m.d.sync += self.may_send.bit_select(release_qp, 1).eq(1)
        m.d.sync += [self.released.valid.eq(release), self.released.qp.eq(release_qp)]
        # A QP that stops in this cycle, or stopped in the last one, is not released.
        stopped = Signal()
        stopped_qp = Signal(config.qp_bits)
        m.d.sync += [stopped.eq(stop), stopped_qp.eq(qp)]
        m.d.comb += release_qp.eq(segment)
        with m.If(segment_new & ~(stop & (qp == segment)) & ~(stopped & (stopped_qp == segment))):
            m.d.comb += release.eq(1)

        is_command = Signal()
        initiator = self.qp_command.payload.initiator
        error = Signal(self._error)
        state = Signal(layout)
        turn = Signal(range(max(2, len(self.errors))))
        m.d.comb += [read.addr.eq(qp), write.addr.eq(qp)]
        with m.If(self.event.ready):
            m.d.sync += self.event.valid.eq(0)

        with m.FSM():
            # After a reset no QP exists.
            with m.State("FORGET_ALL"):
                m.d.comb += write.en.eq(1)
                m.d.sync += qp.eq(qp + 1)
                with m.If(qp == config.qps - 1):
                    m.next = "IDLE"
            # Waits for a command or an error; looks at one error input per cycle.
            with m.State("IDLE"):
                valids = Array(stream.valid for stream in self.errors)
                payloads = Array(stream.payload.as_value() for stream in self.errors)
                m.d.sync += [
                    is_command.eq(self.qp_command.valid),
                    error.eq(payloads[turn]),
                ]
                # A flood of commands is not possible: each takes several register writes.
                with m.If(self.qp_command.valid):
                    m.d.sync += qp.eq(self.qp_command.payload.qp)
                    m.next = "LOOK_UP"
                with m.Else():
                    m.d.sync += turn.eq(turn + 1)
                    with m.If(turn == len(self.errors) - 1):
                        m.d.sync += turn.eq(0)
                    for number, source in enumerate(self.errors):
                        m.d.comb += source.ready.eq(turn == number)
                    with m.If(valids[turn]):
                        m.d.sync += qp.eq(data.View(self._error, payloads[turn]).qp)
                        m.next = "LOOK_UP"
            # The memory reads.
            with m.State("LOOK_UP"):
                m.next = "LOAD"
            # The state of the QP is here.
            with m.State("LOAD"):
                m.d.sync += state.eq(read.data)
                m.next = "MOVE"
            # Moves on; waits if an event has to be handed on and the last one is still there, or
            # for a cycle if a segment releases a QP just now.
            with m.State("MOVE"):
                alive = Signal()
                m.d.comb += [
                    alive.eq((state.state == QpState.INIT) | (state.state == QpState.RTS)),
                    write.data.eq(state),
                ]
                m.next = "IDLE"
                with m.If(is_command):
                    m.d.comb += self.qp_command.ready.eq(1)
                    with m.Switch(self.qp_command.payload.kind):
                        with m.Case(QpCommandKind.CREATE):
                            m.d.comb += [
                                stop.eq(1),
                                write.en.eq(1),
                                write.data.state.eq(QpState.INIT),
                                write.data.cause.eq(Cause.NONE),
                            ]
                        with m.Case(QpCommandKind.CONNECT):
                            with m.If(state.state == QpState.INIT):
                                with m.If(initiator & segment_new):
                                    m.d.comb += self.qp_command.ready.eq(0)
                                    m.next = "MOVE"
                                with m.Else():
                                    m.d.comb += [
                                        write.en.eq(1),
                                        write.data.state.eq(QpState.RTS),
                                    ]
                                    m.d.sync += self.running.bit_select(qp, 1).eq(1)
                                    with m.If(initiator):
                                        m.d.comb += [release.eq(1), release_qp.eq(qp)]
                        with m.Case(QpCommandKind.STOP):
                            with m.If(alive):
                                m.d.comb += [
                                    stop.eq(1),
                                    write.en.eq(1),
                                    write.data.state.eq(QpState.ERROR),
                                    write.data.cause.eq(Cause.STOPPED_BY_DRIVER),
                                ]
                        with m.Case(QpCommandKind.DESTROY):
                            m.d.comb += [
                                stop.eq(1),
                                write.en.eq(1),
                                write.data.state.eq(QpState.RESET),
                                write.data.cause.eq(Cause.NONE),
                            ]
                with m.Elif(alive):
                    with m.If(self.event.valid & ~self.event.ready):
                        m.next = "MOVE"
                    with m.Else():
                        m.d.comb += [
                            stop.eq(1),
                            write.en.eq(1),
                            write.data.state.eq(QpState.ERROR),
                            write.data.cause.eq(error.cause),
                        ]
                        m.d.sync += [self.event.valid.eq(1), self.event.payload.eq(error)]

        return m
