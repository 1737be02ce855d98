"""Knows the state and the first error of every QP."""

from functools import reduce
from operator import or_

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.encodings import encoding
from stagecoach.gateware.layouts import Layouts, QpCommandKind, QpStrobe
from stagecoach.gateware.queues.qp_choice import bit_of_qp
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.registers import encodings

QpState = encoding("QpState", encodings()["qp_state"], unsigned(2), "State of a QP.")


class QpStates(wiring.Component):
    """Moves QPs from state to state and turns the first error of each into an event.

    CREATE -> INIT; CONNECT in INIT -> RTS; STOP in INIT or RTS -> ERROR with cause
    STOPPED_BY_DRIVER and without an event; DESTROY -> RESET. A command out of place changes
    nothing. The first error of a QP in INIT or RTS moves it to ERROR and is handed on: at `event`
    for the program, at `termination` for the peer. Errors of QPs in RESET or ERROR are ignored.
    Commands, and the error inputs in turn, are taken one every 5 cycles, one every 9 after one
    that is handed on; only an `event` or a `termination` that is not ready holds them up.

    A QP of which `running` is set is in RTS. It may send (`may_send`) from CONNECT on if it is the
    initiator, else from its first received segment on (RFC 5044, 7.1.2): `first_segment` may pulse
    for this one and for any later segment. `released` pulses when `may_send` rises, in either way.
    A command is taken (`ready`) two cycles before the vectors show its effect. They follow an
    error 5 cycles after it was taken, and `first_segment` after 5.

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
                "termination": Out(stream.Signature(layouts.termination)),
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

        # The responder's first segment: registered, looked up in two cycles, set in the next.
        first = Signal(QpStrobe(config).members["qp"].shape)
        first_valid = Signal()
        looked_up = Signal.like(first)
        looked_up_valid = Signal()
        segment = Signal.like(first)
        segment_valid = Signal()
        held_back = bit_of_qp(m, self.running & ~self.may_send, looked_up, first)
        segment_new = segment_valid & held_back
        m.d.sync += [
            first.eq(self.first_segment.qp),
            first_valid.eq(self.first_segment.valid),
            looked_up.eq(first),
            looked_up_valid.eq(first_valid),
            segment.eq(looked_up),
            segment_valid.eq(looked_up_valid),
        ]
        release = Signal()
        release_qp = Signal(config.qp_bits)
        stop = Signal()

        start = Signal()
        qp = Signal(config.qp_bits)
        # The vectors change a cycle after the decision, so that its logic and theirs do not add up.
        started = Signal()
        stopped = Signal()
        stopped_before = Signal()
        last_qp = Signal(config.qp_bits)
        qp_before = Signal(config.qp_bits)
        m.d.sync += [
            started.eq(start),
            stopped.eq(stop),
            stopped_before.eq(stopped),
            last_qp.eq(qp),
            qp_before.eq(last_qp),
            self.released.valid.eq(release),
            self.released.qp.eq(release_qp),
        ]
        with m.If(started):
            m.d.sync += self.running.bit_select(last_qp, 1).eq(1)
        with m.If(stopped):
            m.d.sync += [
                self.running.bit_select(last_qp, 1).eq(0),
                self.may_send.bit_select(last_qp, 1).eq(0),
            ]
        with m.If(self.released.valid):
            m.d.sync += self.may_send.bit_select(self.released.qp, 1).eq(1)
        # A QP that stops in this cycle, or in the three before, is not released.
        m.d.comb += release_qp.eq(segment)
        # `qp` stands from the cycle before `stop` on, so the comparison is one of that cycle.
        same = Signal()  # `qp` is `segment`, if it stands
        barred = Signal()  # it stopped in one of the three cycles before
        m.d.sync += [
            same.eq(qp == looked_up),
            barred.eq(
                (stop & (qp == looked_up))
                | (stopped & (last_qp == looked_up))
                | (stopped_before & (qp_before == looked_up))
            ),
        ]
        with m.If(segment_new & ~barred & ~(stop & same)):
            m.d.comb += release.eq(1)

        is_command = Signal()
        initiator = self.qp_command.payload.initiator
        error = Signal(self._error)
        state = Signal(layout)
        alive = Signal()  # it is INIT or RTS
        turn = Signal(len(self.errors), init=1)  # one-hot
        pending = Signal(len(self.errors))  # stays as it is until the error is taken
        m.d.sync += pending.eq(Cat(stream.valid for stream in self.errors))
        m.d.comb += [read.addr.eq(qp), write.addr.eq(qp)]
        for output in (self.event, self.termination):
            with m.If(output.ready):
                m.d.sync += output.valid.eq(0)
        may_send = Signal()
        might_send = bit_of_qp(m, self.may_send, qp)
        told_cause = Signal(8)
        m.d.comb += [
            self.event.payload.eq(error),
            self.termination.payload.qp.eq(error.qp),
            self.termination.payload.may_send.eq(may_send),
            self.termination.payload.cause.eq(told_cause),
            self.termination.payload.ulpdu_length.eq(error.ulpdu_length),
            self.termination.payload.header.eq(error.header),
        ]

        with m.FSM():
            # After a reset no QP exists.
            with m.State("FORGET_ALL"):
                m.d.comb += write.en.eq(1)
                m.d.sync += qp.eq(qp + 1)
                with m.If(qp == config.qps - 1):
                    m.next = "IDLE"
            # Waits for a command or an error; if there is one, looks at one error input per cycle.
            with m.State("IDLE"):
                m.d.sync += is_command.eq(self.qp_command.valid)
                # A flood of commands is not possible: each takes several register writes.
                with m.If(self.qp_command.valid):
                    m.d.sync += qp.eq(self.qp_command.payload.qp)
                    m.next = "LOOK_UP"
                with m.Elif((pending & turn).any()):
                    m.next = "TAKE"
                with m.Elif(pending.any()):
                    m.d.sync += turn.eq(turn.rotate_left(1))
            # Takes the error.
            with m.State("TAKE"):
                taken = Signal(self._error)
                for number, source in enumerate(self.errors):
                    m.d.comb += source.ready.eq(turn[number])
                m.d.comb += taken.as_value().eq(
                    reduce(
                        or_,
                        (
                            Mux(turn[number], source.payload.as_value(), 0)
                            for number, source in enumerate(self.errors)
                        ),
                    )
                )
                m.d.sync += [error.eq(taken), qp.eq(taken.qp), turn.eq(turn.rotate_left(1))]
                m.next = "LOOK_UP"
            # The memory reads.
            with m.State("LOOK_UP"):
                m.next = "LOAD"
            # The state of the QP is here.
            with m.State("LOAD"):
                m.d.sync += [
                    state.eq(read.data),
                    alive.eq((read.data.state == QpState.INIT) | (read.data.state == QpState.RTS)),
                ]
                m.next = "MOVE"
            # Moves on; waits for a cycle if a segment releases a QP just now.
            with m.State("MOVE"):
                m.d.comb += write.data.eq(state)
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
                                    m.d.comb += start.eq(1)
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
                    m.d.comb += [
                        stop.eq(1),
                        write.en.eq(1),
                        write.data.state.eq(QpState.ERROR),
                        write.data.cause.eq(error.cause),
                    ]
                    m.d.sync += self.event.valid.eq(1)
                    m.next = "ALLOWED"
            # What the QP was allowed in MOVE is looked up.
            with m.State("ALLOWED"):
                m.next = "TERMINATION"
            # Tells the transmitter, with that.
            with m.State("TERMINATION"):
                m.d.sync += [
                    self.termination.valid.eq(1),
                    may_send.eq(might_send),
                    told_cause.eq(error.cause),
                ]
                m.next = "TELL"
            # Waits until host and transmitter have been told: no command comes in between.
            with m.State("TELL"):
                with m.If(~self.event.valid & ~self.termination.valid):
                    m.next = "IDLE"

        return m
