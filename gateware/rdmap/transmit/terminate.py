"""The Terminate message for a QP that stopped (RFC 5040, 4.8 and 7.1)."""

from amaranth.hdl import Cat, Const, Elaboratable, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.headers import CONTROL, UNTAGGED_HEADER, to_wire
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.checks import is_terminate
from stagecoach.gateware.rdmap.headers import TERMINATE_CONTROL, TERMINATE_HEADER_OCTETS
from stagecoach.hw.interface.causes import CODES, HeaderCopy, header_copy
from stagecoach.hw.interface.wire import (
    READ_REQUEST_HEADER_OCTETS,
    TAGGED_HEADER_OCTETS,
    TERMINATE_CONTROL_OCTETS,
    TERMINATE_LENGTH_OCTETS,
    UNTAGGED_HEADER_OCTETS,
)


class TransmitTerminate(wiring.Component):
    """Makes the Terminate header of a termination, or none, two cycles after it.

    A QP that was not allowed to send yet says nothing (tables C-39), nor does one that stopped for
    a reason without a code, as a received Terminate is. No Terminate answers another one, even if
    that is in error (RFC 5040, 5.4).

    Members
    -------
    termination: In, from the QP states.
    speak: Out(1), there is a Terminate to send.
    octets: Out(6), of its header: 4, 20, 24 or 52.
    header: Out, byte i in bits [8i+7:8i].
    """

    def __init__(self, config: RnicConfig):
        super().__init__(
            {
                "termination": In(Layouts(config).termination),
                "speak": Out(1),
                "octets": Out(range(TERMINATE_HEADER_OCTETS + 1)),
                "header": Out(8 * TERMINATE_HEADER_OCTETS),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        termination = self.termination
        control = Signal(TERMINATE_CONTROL)
        has_code = Signal()
        about = data.View(UNTAGGED_HEADER, termination.header[: UNTAGGED_HEADER.size])
        termination_cause = Signal.like(termination.cause)
        m.d.sync += termination_cause.eq(termination.cause)
        with m.Switch(termination_cause):
            for cause, (code, _) in CODES.items():
                if code is None or not code.can_be_sent:
                    continue
                copy = header_copy(cause)
                with m.Case(cause):
                    m.d.sync += [
                        # A header to copy is a whole one.
                        has_code.eq(1 if copy is HeaderCopy.NONE else ~is_terminate(about)),
                        control.eq(
                            Cat(
                                Const(code.error_type, 4),
                                Const(code.layer, 4),
                                Const(code.error_code, 8),
                                Const(0, 5),
                                Const(copy is HeaderCopy.READ_REQUEST, 1),
                                Const(copy is not HeaderCopy.NONE, 1),
                                Const(copy is not HeaderCopy.NONE, 1),
                                Const(0, 8),
                            )
                        ),
                    ]
            with m.Default():
                m.d.sync += [has_code.eq(0), control.eq(0)]

        m.d.comb += [
            self.speak.eq(has_code & termination.may_send),
            self.header.eq(Cat(control, to_wire(termination.ulpdu_length, 2), termination.header)),
        ]
        first_octet = data.View(CONTROL, termination.header[: CONTROL.size])
        copied = TERMINATE_CONTROL_OCTETS + TERMINATE_LENGTH_OCTETS
        m.d.comb += self.octets.eq(TERMINATE_CONTROL_OCTETS)
        with m.If(control.read_request_header):
            m.d.comb += self.octets.eq(copied + UNTAGGED_HEADER_OCTETS + READ_REQUEST_HEADER_OCTETS)
        with m.Elif(control.ddp_header & first_octet.tagged):
            m.d.comb += self.octets.eq(copied + TAGGED_HEADER_OCTETS)
        with m.Elif(control.ddp_header):
            m.d.comb += self.octets.eq(copied + UNTAGGED_HEADER_OCTETS)
        return m
