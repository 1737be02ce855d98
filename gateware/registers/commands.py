"""Carries out the commands that the host starts in the COMMAND register."""

from amaranth import Cat, Module, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.encodings import encoding
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.registers.block import register_layout
from stagecoach.hw.interface.registers import encodings, registers

CommandOpcode = encoding(
    "CommandOpcode", {"NONE": 0} | encodings()["command"], unsigned(8), "COMMAND.opcode."
)


STAGING_PREFIXES = ("QP_", "STAG_", "CQ_", "SRQ_")


def staging_registers() -> dict:
    """Layout of every staging register by its name in lower case."""
    return {
        register.name.lower(): register_layout(register)
        for register in registers()
        if register.name.startswith(STAGING_PREFIXES)
        and not any(field.driven or field.message for field in register.fields)
    }


class CommandProcessor(wiring.Component):
    """Takes one opcode at a time and its arguments from the staging registers.

    The blocks with per-QP state hear of a QP on `qp_command` (forked to all of them), `qp_states`
    on `state_command`: last when a QP comes to life, first when it stops, so that `running` is
    never high while a block does not know the QP. STOP, DESTROY, STAG_INVALIDATE and SRQ_DESTROY
    end with a fence: what was begun before has ended. The next opcode is taken when the last one is
    done.

    Members
    -------
    opcode: the COMMAND register.
    staging registers: inputs, named as in the description in lower case.
    qp_command, state_command: steps in the life of a QP; the first one also those of a shared
        receive ring, which are for those blocks only that know rings.
    stag_write, stag_invalidate: to the STag table.
    stag_clear, stag_clearing: empties the STag table.
    cq_command: to the ring writer.
    fence_start, fence_busy: to the fence.
    busy: a command is under way. invalid: the last one had no valid opcode or argument.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        layouts = Layouts(config)
        command = stream.Signature(layouts.qp_command)
        super().__init__(
            {
                "opcode": In(stream.Signature(8)),
                "qp_command": Out(command),
                "state_command": Out(command),
                "stag_write": Out(stream.Signature(layouts.stag_entry)),
                "stag_invalidate": Out(stream.Signature(layouts.stag)),
                "stag_clear": Out(1),
                "stag_clearing": In(1),
                "cq_command": Out(stream.Signature(layouts.cq_command)),
                "fence_start": Out(1),
                "fence_busy": In(1),
                "busy": Out(1),
                "invalid": Out(1),
            }
            | {name: In(layout) for name, layout in staging_registers().items()}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        opcode = Signal(CommandOpcode)
        kind = Signal(QpCommandKind)
        after_fence_destroy = Signal()

        # The staging registers stand still while a command is under way.
        qp_valid, cqs_valid, reads_valid, cq_valid, scope_valid = (Signal() for _ in range(5))
        ring_valid = Signal()
        m.d.sync += [
            qp_valid.eq(self.qp_number.qp < config.qps),
            cqs_valid.eq(
                (self.qp_cqs.send_cq < config.cqs) & (self.qp_cqs.receive_cq < config.cqs)
            ),
            reads_valid.eq(
                (self.qp_reads.ord <= config.read_queue_depth)
                & (self.qp_reads.ird <= config.read_queue_depth)
            ),
            cq_valid.eq(self.cq_number.cq <= config.cqs),
            scope_valid.eq((self.stag_qp.qp < config.qps) | ~self.stag_access.scoped),
            ring_valid.eq((self.qp_srq.ring < config.qps) | ~self.qp_srq.shared),
        ]
        valid = Signal()
        with m.Switch(opcode):
            with m.Case(CommandOpcode.QP_CREATE):
                m.d.comb += valid.eq(qp_valid & cqs_valid & ring_valid)
            with m.Case(CommandOpcode.QP_CONNECT):
                m.d.comb += valid.eq(qp_valid & reads_valid)
            with m.Case(
                CommandOpcode.QP_STOP,
                CommandOpcode.QP_DESTROY,
                CommandOpcode.SRQ_CREATE,
                CommandOpcode.SRQ_DESTROY,
                CommandOpcode.SRQ_LIMIT,
            ):
                m.d.comb += valid.eq(qp_valid)
            with m.Case(CommandOpcode.STAG_WRITE):
                m.d.comb += valid.eq(scope_valid)
            with m.Case(CommandOpcode.STAG_INVALIDATE, CommandOpcode.STAG_RESET):
                m.d.comb += valid.eq(1)
            with m.Case(CommandOpcode.CQ_ENABLE, CommandOpcode.CQ_DISABLE):
                m.d.comb += valid.eq(cq_valid)

        self._connect_arguments(m, kind, opcode)

        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):  # waits for an opcode
                m.d.comb += self.opcode.ready.eq(1)
                with m.If(self.opcode.valid):
                    m.d.sync += opcode.eq(self.opcode.payload)
                    m.next = "CHECK"
            with m.State("CHECK"):  # checks the arguments
                m.d.sync += [self.invalid.eq(~valid), after_fence_destroy.eq(0)]
                with m.If(~valid):
                    m.next = "IDLE"
                with m.Else():
                    with m.Switch(opcode):
                        with m.Case(CommandOpcode.QP_CREATE):
                            m.d.sync += kind.eq(QpCommandKind.CREATE)
                            m.next = "BLOCKS_FIRST"
                        with m.Case(CommandOpcode.QP_CONNECT):
                            m.d.sync += kind.eq(QpCommandKind.CONNECT)
                            m.next = "BLOCKS_FIRST"
                        with m.Case(CommandOpcode.QP_STOP):
                            m.d.sync += kind.eq(QpCommandKind.STOP)
                            m.next = "STATE_FIRST"
                        with m.Case(CommandOpcode.QP_DESTROY):
                            m.d.sync += [
                                kind.eq(QpCommandKind.STOP),
                                after_fence_destroy.eq(1),
                            ]
                            m.next = "STATE_FIRST"
                        with m.Case(CommandOpcode.SRQ_CREATE):
                            m.d.sync += kind.eq(QpCommandKind.RING_CREATE)
                            m.next = "RING"
                        with m.Case(CommandOpcode.SRQ_DESTROY):
                            m.d.sync += kind.eq(QpCommandKind.RING_DESTROY)
                            m.next = "BLOCKS_LAST"
                        with m.Case(CommandOpcode.SRQ_LIMIT):
                            m.d.sync += kind.eq(QpCommandKind.RING_LIMIT)
                            m.next = "RING"
                        with m.Case(CommandOpcode.STAG_WRITE):
                            m.next = "STAG_WRITE"
                        with m.Case(CommandOpcode.STAG_INVALIDATE):
                            m.next = "STAG_INVALIDATE"
                        with m.Case(CommandOpcode.CQ_ENABLE, CommandOpcode.CQ_DISABLE):
                            m.next = "CQ"
                        with m.Case(CommandOpcode.STAG_RESET):
                            m.next = "STAG_RESET"
            with m.State("BLOCKS_FIRST"):  # waits until every block knows the QP
                m.d.comb += self.qp_command.valid.eq(1)
                with m.If(self.qp_command.ready):
                    m.next = "STATE_LAST"
            with m.State("STATE_LAST"):  # waits until the state is entered
                m.d.comb += self.state_command.valid.eq(1)
                with m.If(self.state_command.ready):
                    m.next = "IDLE"
            with m.State("RING"):  # waits until every block knows of a shared ring
                m.d.comb += self.qp_command.valid.eq(1)
                with m.If(self.qp_command.ready):
                    m.next = "IDLE"
            with m.State("STATE_FIRST"):  # waits until the QP has stopped running
                m.d.comb += self.state_command.valid.eq(1)
                with m.If(self.state_command.ready):
                    m.next = "BLOCKS_LAST"
            with m.State("BLOCKS_LAST"):  # waits until every block knows of the end
                m.d.comb += self.qp_command.valid.eq(1)
                with m.If(self.qp_command.ready):
                    m.next = "FENCE"
            with m.State("STAG_WRITE"):  # waits until the entry is written
                m.d.comb += self.stag_write.valid.eq(1)
                with m.If(self.stag_write.ready):
                    m.next = "IDLE"
            with m.State("STAG_INVALIDATE"):  # waits until the entry is invalid
                m.d.comb += self.stag_invalidate.valid.eq(1)
                with m.If(self.stag_invalidate.ready):
                    m.next = "FENCE"
            with m.State("STAG_RESET"):  # starts the sweep
                m.d.comb += self.stag_clear.eq(1)
                m.next = "STAG_SWEEP_BEGINS"
            with m.State("STAG_SWEEP_BEGINS"):  # waits until the sweep has begun
                m.next = "STAG_SWEEP"
            with m.State("STAG_SWEEP"):  # waits until the table is empty
                with m.If(~self.stag_clearing):
                    m.next = "FENCE"
            with m.State("CQ"):  # waits until the ring is known
                m.d.comb += self.cq_command.valid.eq(1)
                with m.If(self.cq_command.ready):
                    m.next = "IDLE"
            with m.State("FENCE"):  # starts the fence
                m.d.comb += self.fence_start.eq(1)
                m.next = "FENCE_WAIT"
            with m.State("FENCE_WAIT"):  # waits until what was begun before has ended
                with m.If(~self.fence_busy):
                    m.next = "IDLE"
                    with m.If(after_fence_destroy):
                        m.d.sync += kind.eq(QpCommandKind.DESTROY)
                        m.next = "BLOCKS_FIRST"
        return m

    def _connect_arguments(self, m: Module, kind: Signal, opcode: Signal) -> None:
        for port in (self.qp_command, self.state_command):
            m.d.comb += [
                port.p.kind.eq(kind),
                port.p.qp.eq(self.qp_number.qp),
                port.p.pd.eq(self.qp_pd.pd),
                port.p.send_cq.eq(self.qp_cqs.send_cq),
                port.p.receive_cq.eq(self.qp_cqs.receive_cq),
                port.p.send_base.eq(Cat(self.qp_send_base_low.value, self.qp_send_base_high.value)),
                port.p.send_log2.eq(self.qp_rings.send_log2),
                port.p.receive_base.eq(
                    Cat(self.qp_receive_base_low.value, self.qp_receive_base_high.value)
                ),
                port.p.receive_log2.eq(self.qp_rings.receive_log2),
                port.p.shared.eq(self.qp_srq.shared),
                port.p.ring.eq(self.qp_srq.ring),
                port.p.limit.eq(self.srq_limit.limit),
                port.p.producer.eq(self.srq_limit.producer),
                port.p.ord.eq(self.qp_reads.ord),
                port.p.ird.eq(self.qp_reads.ird),
                port.p.emss.eq(self.qp_emss.emss),
                port.p.crc.eq(self.qp_mode.crc),
                port.p.transmit_markers.eq(self.qp_mode.transmit_markers),
                port.p.receive_markers.eq(self.qp_mode.receive_markers),
                port.p.initiator.eq(self.qp_mode.initiator),
                port.p.rfc7306.eq(self.qp_mode.rfc7306),
            ]
        m.d.comb += [
            self.stag_write.p.stag.eq(self.stag_value.stag),
            self.stag_write.p.pd.eq(self.stag_access.pd),
            self.stag_write.p.rights.eq(self.stag_access.rights),
            self.stag_write.p.scoped.eq(self.stag_access.scoped),
            self.stag_write.p.fast.eq(self.stag_access.fast),
            self.stag_write.p.qp.eq(self.stag_qp.qp),
            self.stag_write.p.base.eq(Cat(self.stag_base_low.value, self.stag_base_high.value)),
            self.stag_write.p.length.eq(
                Cat(self.stag_length_low.value, self.stag_length_high.value)
            ),
            self.stag_write.p.address.eq(
                Cat(self.stag_address_low.value, self.stag_address_high.value)
            ),
            self.stag_invalidate.p.stag.eq(self.stag_value.stag),
            self.cq_command.p.cq.eq(self.cq_number.cq),
            self.cq_command.p.enable.eq(opcode == CommandOpcode.CQ_ENABLE),
            self.cq_command.p.base.eq(Cat(self.cq_base_low.value, self.cq_base_high.value)),
            self.cq_command.p.log2.eq(self.cq_size.log2),
        ]
