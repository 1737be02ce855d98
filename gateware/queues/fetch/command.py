"""Does a QP command: a ring is made or forgotten."""

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.queues.fetch.visit import RING


class FetchCommand(wiring.Component):
    """Starts all numbers of a ring at 0, and stores where it is if there is one.

    A ring comes and goes with its QP, a receive ring not with one that takes from a shared ring;
    those come and go with RING_CREATE and RING_DESTROY. These commands wait until no read is
    outstanding, so nothing that was read for the old ring is taken for the new one. No visit
    happens meanwhile. Commands of other kinds change nothing.

    Latency: `command` is taken after 2 cycles, or after a cycle if it changes nothing; later while
    reads are outstanding, or while something is popped or counted in every cycle. Throughput: one
    at a time.

    Parameters
    ----------
    config: sizes of the device.
    send: the send rings, else the receive rings.

    Members
    -------
    command: In(stream qp_command).
    quiet: In(1), no read is outstanding.
    may_settle: In(1), nothing is popped, nor counted, in this cycle.
    restart: Out(1), a pulse, or some of them: all numbers to be stored are 0.
    forget: Out(1), they are stored, and the `ring`, Out(RING), with them; in some cycles, of which
        the last one counts.
    """

    def __init__(self, config: RnicConfig, *, send: bool):
        self._send = send
        super().__init__(
            {
                "command": In(stream.Signature(Layouts(config).qp_command)),
                "quiet": In(1),
                "may_settle": In(1),
                "restart": Out(1),
                "forget": Out(1),
                "ring": Out(RING),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        command = self.command.payload
        creates = Signal()
        m.d.comb += [
            self.ring.exists.eq(creates),
            self.ring.base.eq(command.send_base if self._send else command.receive_base),
            self.ring.log2.eq(command.send_log2 if self._send else command.receive_log2),
        ]

        with m.FSM():
            # Wait for a command, and until no read is outstanding if it changes a ring.
            with m.State("DRAIN"):
                is_create = command.kind == QpCommandKind.CREATE
                is_destroy = command.kind == QpCommandKind.DESTROY
                if not self._send:
                    is_create &= ~command.shared
                    is_create |= command.kind == QpCommandKind.RING_CREATE
                    is_destroy &= ~command.shared
                    is_destroy |= command.kind == QpCommandKind.RING_DESTROY
                with m.If(self.command.valid):
                    m.d.comb += self.restart.eq(1)
                    m.d.sync += creates.eq(is_create)
                    with m.If(~is_create & ~is_destroy):
                        m.next = "DONE"
                    with m.Elif(self.quiet):
                        m.next = "FORGET"

            # Until that was done in a cycle without a pop, which uses the memory, and without a
            # unit that is counted: the enables do not wait for it.
            with m.State("FORGET"):
                m.d.comb += self.forget.eq(1)
                with m.If(self.may_settle):
                    m.next = "DONE"

            # Take the command.
            with m.State("DONE"):
                m.d.comb += self.command.ready.eq(1)
                m.next = "DRAIN"
        return m
