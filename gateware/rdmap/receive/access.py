"""Looks up the STags of judged segments, then tells the error, or places and delivers.

RFC 5041, 7.2; RFC 5040, 5.3, 5.5, 7.2.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.checks import CAUSE_BITS, first_cause, tagged_status_checks
from stagecoach.gateware.ddp.headers import UNTAGGED_HEADER, from_wire
from stagecoach.gateware.layouts import DeliveryKind, Layouts, QpStrobe, StagStatus
from stagecoach.gateware.rdmap.checks import (
    IMMEDIATE_OPCODES,
    INVALIDATING_OPCODES,
    REQUEST_OPCODES,
    RESPONSE_OPCODES,
    SEND_OPCODES,
    SOLICITING_OPCODES,
    atomic_status_checks,
    invalidate_status_checks,
    is_any,
    read_status_checks,
)
from stagecoach.gateware.rdmap.headers import IMMEDIATE_ULPDU, TERMINATE_ULPDU, Opcode
from stagecoach.gateware.rdmap.receive.pieces import BANKS, PIECE_WRITE
from stagecoach.gateware.rdmap.receive.record import record_layout
from stagecoach.gateware.rdmap.receive.scan import PIECE
from stagecoach.gateware.stag.ports import StagClient
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS, CompletionFlags, Rights


class ReceiveAccess(wiring.Component):
    """Deals with one record after another, in order.

    A record without pieces takes 3 cycles. A piece to place takes those and the time of the STag
    table, each further one 3 and that time; one to read takes one more, and so does a delivery.
    Nothing is looked up before the record ahead was placed and delivered and an invalidation by it
    took effect, so an STag that was found good is held by one record at a time.

    Members
    -------
    record: In(stream of `record_layout`), taken when the one before is dealt with.
    piece: In, `PIECE_WRITE`, in the cycle in which its record is taken at the latest.
    idle: Out(1), no record is at work.
    stop: Out(QpStrobe), a record failed; at least two cycles before the next one is taken.
    stag, invalidate, placement, delivery, error, first_segment, placing, end: as of the `Receiver`.
    """

    def __init__(self, config: RnicConfig) -> None:
        self._config = config
        layouts = Layouts(config)
        super().__init__(
            {
                "record": In(stream.Signature(record_layout(config))),
                "piece": In(PIECE_WRITE),
                "idle": Out(1),
                "stop": Out(QpStrobe(config)),
                "stag": Out(StagClient(layouts)),
                "invalidate": Out(stream.Signature(layouts.stag)),
                "placement": Out(stream.Signature(layouts.placement)),
                "delivery": Out(stream.Signature(layouts.delivery)),
                "error": Out(stream.Signature(layouts.qp_error)),
                "first_segment": Out(QpStrobe(config)),
                "placing": Out(1),
                "end": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()

        # The record at work
        arriving, taken = self.record.payload, self.record.valid
        record = Signal(record_layout(self._config))
        opcode = record.opcode
        invalidate_stag = _invalidated_stag(record)

        # Its pieces: ranges to look up, and then to place if they are payload
        depth = BANKS * SCATTER_GATHER_ELEMENTS
        m.submodules.pieces = pieces = Memory(shape=PIECE, depth=depth, init=[])
        m.submodules.addresses = addresses = Memory(
            shape=64, depth=SCATTER_GATHER_ELEMENTS, init=[]
        )
        placement = self.placement.payload
        # Once more, to be read for the placement
        m.submodules.lengths = lengths = Memory(
            shape=placement.octets.shape(), depth=depth, init=[]
        )
        piece_write, piece_read = pieces.write_port(), pieces.read_port(domain="comb")
        length_write, length_read = lengths.write_port(), lengths.read_port(domain="comb")
        address_write, address_read = addresses.write_port(), addresses.read_port(domain="comb")
        number = Signal(range(SCATTER_GATHER_ELEMENTS))
        piece = piece_read.data
        is_last = Signal()
        m.d.comb += [
            piece_write.addr.eq(Cat(self.piece.number, self.piece.bank)),
            piece_write.data.eq(self.piece.piece),
            piece_write.en.eq(self.piece.valid),
            length_write.addr.eq(piece_write.addr),
            length_write.data.eq(self.piece.piece.octets[: len(placement.octets)]),
            length_write.en.eq(self.piece.valid),
            piece_read.addr.eq(Cat(number, record.bank)),
            address_write.addr.eq(number),
            address_write.data.eq(self.stag.response.address),
            is_last.eq(number + 1 >= record.pieces),
        ]

        # The STag table: answers are looked at a cycle after they came
        request, response = self.stag.request.payload, self.stag.response
        asking = Signal()
        invalidating = Signal()
        rights = _needed_rights(m, opcode)
        status = Signal(StagStatus)
        is_misaligned = Signal()  # the target of an Atomic Request (RFC 7306, 8.2)
        misaligned = Signal()
        refused = Signal()  # by either, for what many registers and the next state wait for
        m.d.comb += [
            is_misaligned.eq((opcode == Opcode.ATOMIC_REQUEST) & (response.address[:3] != 0)),
            self.stag.request.valid.eq(asking),
            request.stag.eq(Mux(invalidating, invalidate_stag, piece.stag)),
            request.tagged_offset.eq(piece.tagged_offset),
            request.octets.eq(piece.octets),
            request.rights.eq(Mux(invalidating, 0, rights)),
            request.exclusive.eq(invalidating),
            request.pd.eq(record.pd),
            request.qp.eq(record.qp),
            self.invalidate.payload.stag.eq(invalidate_stag),
        ]
        m.d.sync += [
            status.eq(response.status),
            misaligned.eq(is_misaligned),
            refused.eq((response.status != StagStatus.OK) | is_misaligned),
        ]
        refusal = _status_cause(m, opcode, status, misaligned)

        # Placements, from registers, and deliveries
        next_number = Signal.like(number)  # of the piece to place next
        position = Signal.like(record.position)
        has_octets = Signal()  # as every piece
        places = Signal()  # the verdict is the last one
        is_request = is_any(opcode, REQUEST_OPCODES)
        placements = Signal(16)
        m.d.comb += [
            length_read.addr.eq(Cat(next_number, record.bank)),
            address_read.addr.eq(next_number),
            placement.store_octet.eq(position[:3]),
            placement.store_address.eq(position[3:]),
            placement.qp.eq(record.qp),
            placement.reversed.eq(opcode == Opcode.ATOMIC_RESPONSE),
            placement.stored.eq(record.stored),
        ]
        _fill_delivery(m, self.delivery.payload, record, placements)

        # Errors
        error = self.error.payload
        m.d.comb += [
            error.qp.eq(record.qp),
            error.cause.eq(record.cause),
            error.ulpdu_length.eq(record.ulpdu_length),
            error.header.eq(record.header),
        ]
        with m.Switch(record.cause):
            with m.Case(Cause.LOCAL_RECEIVE_PROTECTION, Cause.LOCAL_SEND_PROTECTION):
                m.d.comb += error.index.eq(record.index)
            # The bytes that an event has end in the middle of the MSN.
            with m.Case(Cause.TERMINATE_RECEIVED):
                terminate = data.View(TERMINATE_ULPDU, record.header[: TERMINATE_ULPDU.size])
                m.d.comb += error.index.eq(from_wire(terminate.msn)[: len(error.index)])
        m.d.comb += [self.stop.qp.eq(record.qp), self.first_segment.qp.eq(record.qp)]

        # What a placement says is loaded in every cycle of a state that may be the last one before
        # it is needed: these registers wait for nothing from far.
        def load(address: Value) -> None:
            m.d.sync += [
                placement.address.eq(address),
                placement.octets.eq(length_read.data),
                placement.release.eq(next_number + 1 >= record.pieces),
                has_octets.eq(1),
            ]

        def load_release() -> None:
            m.d.sync += [placement.octets.eq(0), has_octets.eq(0), placement.release.eq(1)]

        # What comes of a placement that is taken. What only says which one follows is loaded in
        # VERDICT whether the pieces are good or not: it means nothing if they are not.
        def proceed() -> None:
            m.d.sync += position.eq(position + placement.octets)
            with m.If(~placement.release):
                load(address_read.data)
                m.d.sync += next_number.eq(next_number + 1)

        def placed() -> None:
            m.d.sync += placements.eq(placements + has_octets)
            with m.If(placement.release):
                with m.If(record.delivers):
                    m.next = "DELIVER"
                with m.Else():
                    finish()

        m.d.sync += self.end.eq(0)

        def finish() -> None:
            m.d.sync += self.end.eq(1)
            m.next = "IDLE"

        with m.FSM() as fsm:
            # Takes a record.
            with m.State("IDLE"):
                m.d.comb += [self.record.ready.eq(1), self.idle.eq(1)]
                m.d.sync += [
                    record.eq(arriving),
                    position.eq(arriving.position),
                    number.eq(0),
                    next_number.eq(0),
                    invalidating.eq(0),
                    asking.eq(taken & (arriving.pieces != 0)),
                    self.first_segment.valid.eq(taken & arriving.first & ~arriving.dropped),
                ]
                with m.If(self.record.valid):
                    m.next = "START"
            # Asks the STag table about the first piece, if there is one.
            with m.State("START"):
                m.d.sync += self.first_segment.valid.eq(0)
                load_release()
                with m.If(asking):
                    with m.If(self.stag.request.ready):
                        m.d.sync += asking.eq(0)
                        m.next = "ANSWER"
                with m.Elif(record.dropped):
                    m.d.sync += record.delivers.eq(0)
                    m.next = "PLACE"
                with m.Elif(record.cause != Cause.NONE):
                    m.next = "ERROR"
                with m.Elif(record.invalidates):
                    m.next = "INVALIDATE_CHECK"
                with m.Else():
                    m.next = "PLACE"
            # Asks about a further one.
            with m.State("LOOKUP"), m.If(self.stag.request.ready):
                m.d.sync += asking.eq(0)
                m.next = "ANSWER"
            # Waits for the answer.
            with m.State("ANSWER"):
                m.d.comb += address_write.en.eq(1)
                m.d.sync += places.eq(is_last & ~record.invalidates & ~is_request)
                with m.If(number == 0):
                    load(self.stag.response.address)
                with m.If(self.stag.response_valid):
                    with m.If(number == 0):
                        m.d.sync += next_number.eq(1)
                    m.next = "VERDICT"
            # Judges the answer; nothing is placed before all pieces are good.
            with m.State("VERDICT"):
                m.d.sync += [number.eq(number + 1), record.cause.eq(refusal)]
                with m.If(is_request):
                    load_release()
                with m.If(places & self.placement.ready):
                    proceed()
                with m.If(refused):
                    m.next = "ERROR"
                with m.Elif(places):
                    m.d.comb += self.placement.valid.eq(1)
                    m.next = "PLACE"
                    with m.If(self.placement.ready):
                        placed()
                with m.Elif(~is_last):
                    m.d.sync += asking.eq(1)
                    m.next = "LOOKUP"
                with m.Elif(record.invalidates):
                    m.next = "INVALIDATE_CHECK"
                with m.Else():
                    m.next = "PLACE"
            # The request to the STag table is about the STag to invalidate from here on.
            with m.State("INVALIDATE_CHECK"):
                m.d.sync += [invalidating.eq(1), asking.eq(1)]
                m.next = "INVALIDATE_LOOKUP"
            # Asks the STag table whether the peer may invalidate the STag.
            with m.State("INVALIDATE_LOOKUP"), m.If(self.stag.request.ready):
                m.d.sync += asking.eq(0)
                m.next = "INVALIDATE_ANSWER"
            # Waits for the answer.
            with m.State("INVALIDATE_ANSWER"), m.If(self.stag.response_valid):
                m.next = "INVALIDATE_VERDICT"
            # Judges it.
            with m.State("INVALIDATE_VERDICT"):
                failure = first_cause(invalidate_status_checks(status))
                m.next = "INVALIDATE"
                m.d.sync += record.cause.eq(failure)
                with m.If(failure != Cause.NONE):
                    m.next = "ERROR"
            # Waits until the STag is invalid: nothing that comes later may use it.
            with m.State("INVALIDATE"):
                m.d.comb += self.invalidate.valid.eq(1)
                with m.If(self.invalidate.ready):
                    m.next = "PLACE"
            # Tells why the QP stops.
            with m.State("ERROR"):
                m.d.comb += [self.error.valid.eq(1), self.stop.valid.eq(1)]
                m.d.sync += record.delivers.eq(0)
                load_release()
                with m.If(self.error.ready):
                    m.next = "PLACE"
            # Issues the placements; the last one, which may be empty, releases the FPDU.
            with m.State("PLACE"):
                m.d.comb += self.placement.valid.eq(record.fpdu)
                with m.If(self.placement.ready | ~record.fpdu):
                    proceed()
                    placed()
            # Delivers the message that the segment ended.
            with m.State("DELIVER"):
                m.d.comb += self.delivery.valid.eq(1)
                with m.If(self.delivery.ready):
                    finish()
        holding = [fsm.ongoing(name) for name in _HOLDING_STATES]
        m.d.sync += self.placing.eq(Cat(holding).any())
        return m


_HOLDING_STATES = (
    "LOOKUP",
    "ANSWER",
    "VERDICT",
    "INVALIDATE_CHECK",
    "INVALIDATE_LOOKUP",
    "INVALIDATE_ANSWER",
    "INVALIDATE_VERDICT",
    "INVALIDATE",
    "PLACE",
)
"""The states in which a lookup is under way, or an STag was found good and something is placed."""


def _needed_rights(m: Module, opcode: Value) -> Signal:
    """`Rights` of 4 bits; those of a receive entry's element for every message that takes one."""
    rights = Signal(4)
    with m.Switch(opcode):
        with m.Case(Opcode.RDMA_WRITE):
            m.d.comb += rights.eq(Rights.REMOTE_WRITE)
        with m.Case(Opcode.RDMA_READ_REQUEST):
            m.d.comb += rights.eq(Rights.REMOTE_READ)
        with m.Case(Opcode.ATOMIC_REQUEST):
            m.d.comb += rights.eq(Rights.REMOTE_READ | Rights.REMOTE_WRITE)
        with m.Default():
            m.d.comb += rights.eq(Rights.LOCAL_WRITE)
    return rights


def _status_cause(m: Module, opcode: Value, status: Value, misaligned: Value) -> Signal:
    """The `Cause` of a failed lookup; `misaligned` is the target of an Atomic Request."""
    cause = Signal(CAUSE_BITS)
    with m.Switch(opcode):
        with m.Case(Opcode.RDMA_WRITE):
            checks = tagged_status_checks(status, Cause.WRITE_NOT_PERMITTED)
            m.d.comb += cause.eq(first_cause(checks))
        with m.Case(Opcode.RDMA_READ_RESPONSE):
            checks = tagged_status_checks(status, Cause.TAGGED_STAG_INVALID)
            m.d.comb += cause.eq(first_cause(checks))
        with m.Case(Opcode.RDMA_READ_REQUEST):
            m.d.comb += cause.eq(first_cause(read_status_checks(status)))
        with m.Case(Opcode.ATOMIC_REQUEST):
            checks = [*atomic_status_checks(status), (misaligned, Cause.ATOMIC_MISALIGNED)]
            m.d.comb += cause.eq(first_cause(checks))
        with m.Case(Opcode.ATOMIC_RESPONSE):
            m.d.comb += cause.eq(Cause.LOCAL_SEND_PROTECTION)
        with m.Default():
            m.d.comb += cause.eq(Cause.LOCAL_RECEIVE_PROTECTION)
    return cause


def _invalidated_stag(record: data.View) -> Value:
    """The STag of its DDP header."""
    header = data.View(UNTAGGED_HEADER, record.header[: UNTAGGED_HEADER.size])
    return from_wire(header.rsvd_ulp_word)


def _fill_delivery(m: Module, delivery: data.View, record: data.View, placements: Value) -> None:
    """Drives the `delivery` of a record; `placements` counts those with bytes so far."""
    opcode = record.opcode
    is_receive = is_any(opcode, (*SEND_OPCODES, *IMMEDIATE_OPCODES))
    is_immediate = is_any(opcode, IMMEDIATE_OPCODES)
    immediate = data.View(IMMEDIATE_ULPDU, record.header[: IMMEDIATE_ULPDU.size])
    m.d.comb += [
        delivery.kind.eq(
            Mux(
                is_receive,
                DeliveryKind.RECEIVE,
                Mux(is_any(opcode, RESPONSE_OPCODES), DeliveryKind.READ, DeliveryKind.REQUEST),
            )
        ),
        delivery.qp.eq(record.qp),
        delivery.index.eq(Mux(is_receive, record.index, 0)),
        delivery.length.eq(record.length),
        delivery.flags.eq(
            Mux(is_any(opcode, SOLICITING_OPCODES), CompletionFlags.SOLICITED, 0)
            | Mux(is_any(opcode, INVALIDATING_OPCODES), CompletionFlags.INVALIDATED, 0)
            | Mux(is_immediate, CompletionFlags.IMMEDIATE, 0)
        ),
        delivery.detail.eq(Mux(is_immediate, immediate.immediate_data, _invalidated_stag(record))),
        delivery.after.eq(placements),
    ]
