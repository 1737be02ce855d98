"""The whole RNIC: the blocks of docs/architecture.md, joined."""

from typing import Any

from amaranth import Cat, Const, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS, WORD_WIDTH, RnicConfig
from stagecoach.gateware.ddp.assembler import Assembler
from stagecoach.gateware.ddp.headers import UNTAGGED_HEADER
from stagecoach.gateware.dma.axi import connect_axi
from stagecoach.gateware.dma.axi_width import AxiReadWidth, AxiWriteWidth
from stagecoach.gateware.dma.gather import Gather
from stagecoach.gateware.dma.host_errors import HostErrors
from stagecoach.gateware.dma.placement_gate import PlacementGate
from stagecoach.gateware.dma.placer import Placer
from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.gateware.dma.read import ReadEngine
from stagecoach.gateware.dma.write import WriteEngine
from stagecoach.gateware.layouts import (
    DeliveryKind,
    Layouts,
    LlpEventKind,
    QpCommandKind,
    SegmentKind,
)
from stagecoach.gateware.mpa.framer import BEATS_AHEAD, Framer
from stagecoach.gateware.mpa.llp_width import LlpReceiveWidth, LlpTransmitWidth
from stagecoach.gateware.mpa.ports import LlpSignature
from stagecoach.gateware.mpa.receiver import MpaReceiver
from stagecoach.gateware.queues.completer import SendCompleter
from stagecoach.gateware.queues.delivery_gate import DeliveryGate
from stagecoach.gateware.queues.drain import Drain
from stagecoach.gateware.queues.fence import Fence
from stagecoach.gateware.queues.invalidation_gate import InvalidationGate
from stagecoach.gateware.queues.prefetch_memory import UNIT_OCTETS
from stagecoach.gateware.queues.qp_fifo import QpFifo
from stagecoach.gateware.queues.qp_states import QpStates
from stagecoach.gateware.queues.request_gate import RequestGate
from stagecoach.gateware.queues.ring_fetcher import RingFetcher
from stagecoach.gateware.queues.ring_writer import RingWriter
from stagecoach.gateware.queues.scheduler import Scheduler
from stagecoach.gateware.queues.shared_entries import SharedEntries
from stagecoach.gateware.queues.srq_events import SrqEvents
from stagecoach.gateware.queues.transmit_drain import TransmitDrain
from stagecoach.gateware.rdmap.atomic.unit import OPERATIONS, AtomicUnit
from stagecoach.gateware.rdmap.headers import CONTROL as RDMAP_CONTROL
from stagecoach.gateware.rdmap.receive.receiver import Receiver
from stagecoach.gateware.rdmap.transmit.leaving import JOB_BITS
from stagecoach.gateware.rdmap.transmit.transmitter import Transmitter
from stagecoach.gateware.registers.block import RegisterBlock, address_of
from stagecoach.gateware.registers.commands import CommandProcessor, staging_registers
from stagecoach.gateware.registers.counters import Counters
from stagecoach.gateware.registers.ports import AxiLiteSignature
from stagecoach.gateware.stag.table import StagTable
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.gateware.stream.fork import Fork
from stagecoach.gateware.stream.slot import StreamSlot
from stagecoach.hw.interface.queue_entries import RECEIVE_ENTRY_OCTETS, SEND_ENTRY_OCTETS

RING_WRITER_CLIENT = 1
ATOMIC_CLIENT = 2
"""Clients of the write engine whose commands are one burst each."""

JOB_QUEUES = 3
JOBS_IN_QUEUE = 17
JOBS_AHEAD = 1 + JOB_QUEUES * JOBS_IN_QUEUE
"""FPDUs whose payload is being read, in a register and queues: one every 20 cycles for a latency of
1,000. A queue of 17 is the deepest whose memory is one row of distributed RAM."""

assert JOBS_AHEAD + 2 * BEATS_AHEAD < 1 << JOB_BITS  # those that wait and those in the framer

PIECES_AHEAD = 16


class Rnic(wiring.Component):
    """An iWARP RNIC.

    Parameters
    ----------
    config: its sizes.

    Members
    -------
    s_axi: registers, AXI4-Lite slave.
    m_axi: host memory, AXI4 master.
    llp: the LLP port, see docs/architecture.md.
    irq: level, high while an enabled bit of INTERRUPT_STATUS is set.
    """

    def __init__(self, config: RnicConfig | None = None):
        self.config = config = config or RnicConfig()
        super().__init__(
            {
                "s_axi": In(AxiLiteSignature()),
                "m_axi": Out(AxiSignature(config.data_width)),
                "llp": Out(LlpSignature(config)),
                "irq": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._add_blocks(m)
        self._connect_host_memory(m)
        self._connect_receive_path(m)
        self._connect_transmit_path(m)
        self._connect_atomics(m)
        self._connect_queues(m)
        self._connect_commands(m)
        self._connect_registers(m)
        if self.config.counters:
            self._connect_counters(m)
        else:
            m.d.comb += self.registers.counter_select.ready.eq(1)
        return m

    def _add_blocks(self, m: Module) -> None:
        config = self.config
        layouts = self.layouts = Layouts(config)
        reads = config.read_queue_depth
        payload_beats = config.payload_buffer_octets // 8

        m.submodules.registers = self.registers = RegisterBlock()
        m.submodules.commands = self.commands = CommandProcessor(config)
        m.submodules.qp_states = self.qp_states = QpStates(config, errors=7)

        m.submodules.read_engine = self.read_engine = ReadEngine(
            config, (payload_beats, 0, 0, OPERATIONS)
        )
        m.submodules.write_engine = self.write_engine = WriteEngine(
            config, clients=3, whole=(RING_WRITER_CLIENT, ATOMIC_CLIENT)
        )
        m.submodules.host_errors = self.host_errors = HostErrors(config)
        m.submodules.placement_gate = self.placement_gate = PlacementGate(config)
        self.placed = Signal()  # a placement is done, a cycle late, for those that only count it
        m.submodules.gather = self.gather = Gather(config)
        m.submodules.placer = self.placer = Placer(config)

        m.submodules.stag_table = self.stag_table = StagTable(config, clients=2, invalidators=2)
        m.submodules.send_fetcher = self.send_fetcher = RingFetcher(
            config,
            entry_units=SEND_ENTRY_OCTETS // UNIT_OCTETS,
            own_units=config.send_units,
            send=True,
            outstanding=64,
        )
        m.submodules.receive_fetcher = self.receive_fetcher = RingFetcher(
            config,
            entry_units=RECEIVE_ENTRY_OCTETS // UNIT_OCTETS,
            own_units=config.receive_units,
            send=False,
        )
        m.submodules.shared_entries = self.shared_entries = SharedEntries(
            config, RECEIVE_ENTRY_OCTETS // WORD_OCTETS
        )
        m.submodules.srq_events = self.srq_events = SrqEvents(config)
        m.submodules.inbound_requests = self.inbound_requests = QpFifo(
            config, layouts.inbound_request, reads, held=True
        )
        m.submodules.outstanding_requests = self.outstanding_requests = QpFifo(
            config, layouts.outstanding_request, reads
        )
        m.submodules.scheduler = self.scheduler = Scheduler(config, kicks=8)
        m.submodules.completer = self.completer = SendCompleter(config)
        m.submodules.delivery_gate = self.delivery_gate = DeliveryGate(config)
        m.submodules.transmit_drain = self.transmit_drain = TransmitDrain()
        m.submodules.request_gate = self.request_gate = RequestGate(config)
        m.submodules.invalidation_gate = self.invalidation_gate = InvalidationGate(config)
        m.submodules.ring_writer = self.ring_writer = RingWriter(config)
        # What must have ended, stage by stage: segments, from where they wait to be taken, and
        # visits; placements and FPDUs; deliveries and reports; sends that complete and requests
        # that wait for completions; entries in the rings.
        m.submodules.fence = self.fence = Fence(stages=(2, 2, 4, 2, 1))

        # One atomic of each QP may be under way
        m.submodules.atomic_drain = self.atomic_drain = Drain(config.qps.bit_length(), marks=3)
        m.submodules.atomic_unit = self.atomic_unit = AtomicUnit(config)
        m.submodules.mpa_receiver = self.mpa_receiver = MpaReceiver(config)
        m.submodules.receiver = self.receiver = Receiver(config)
        m.submodules.transmitter = self.transmitter = Transmitter(config)
        m.submodules.assembler = self.assembler = Assembler(config)
        m.submodules.framer = self.framer = Framer(config)

    def _queue(self, m: Module, name: str, source: object, sink: object, depth: int) -> None:
        """Joins two streams through a FIFO."""
        queue = StreamFifo(source.payload.shape(), depth)
        m.submodules[name] = queue
        wiring.connect(m, source, queue.i)
        wiring.connect(m, queue.o, sink)

    def _connect_host_memory(self, m: Module) -> None:
        read, write = self.read_engine.m_axi, self.write_engine.m_axi
        width = self.config.data_width
        if width != WORD_WIDTH:
            m.submodules.read_width = read_width = AxiReadWidth(width)
            m.submodules.write_width = write_width = AxiWriteWidth(width)
            wiring.connect(m, read, read_width.words)
            wiring.connect(m, write, write_width.words)
            read, write = read_width.m_axi, write_width.m_axi
        connect_axi(m, wiring.flipped(self.m_axi), read, write)
        clients = self.read_engine.clients
        wiring.connect(m, self.gather.read, clients[0])
        wiring.connect(m, self.send_fetcher.read, clients[1])
        wiring.connect(m, self.receive_fetcher.read, clients[2])
        wiring.connect(m, self.atomic_unit.read, clients[3])
        writers = self.write_engine.clients
        wiring.connect(m, self.placer.write, writers[0])
        wiring.connect(m, self.ring_writer.write, writers[RING_WRITER_CLIENT])
        wiring.connect(m, self.atomic_unit.write, writers[ATOMIC_CLIENT])

    def _connect_receive_path(self, m: Module) -> None:
        receiver, mpa_receiver, llp = self.receiver, self.mpa_receiver, self.llp
        request, answers = mpa_receiver.rx_request, mpa_receiver.rx
        if self.config.data_width != WORD_WIDTH:
            m.submodules.llp_receive_width = width = LlpReceiveWidth(self.config)
            wiring.connect(m, request, width.request)
            wiring.connect(m, width.o, answers)
            request, answers = width.port_request, width.i
        m.d.comb += [
            llp.rx_request_valid.eq(request.valid),
            llp.rx_request_connection.eq(request.p.connection),
            llp.rx_request_position.eq(request.p.position),
            llp.rx_request_octets.eq(request.p.octets),
            request.ready.eq(llp.rx_request_ready),
            answers.valid.eq(llp.rx_valid),
            answers.payload.eq(llp.rx_data),
            llp.rx_ready.eq(answers.ready),
            llp.rx_release_valid.eq(mpa_receiver.rx_release.valid),
            llp.rx_release_connection.eq(mpa_receiver.rx_release.p.connection),
            llp.rx_release_position.eq(mpa_receiver.rx_release.p.position),
            mpa_receiver.rx_release.ready.eq(llp.rx_release_ready),
        ]
        wiring.connect(m, mpa_receiver.segment, receiver.segment)
        wiring.connect(m, receiver.receive_entries, self.shared_entries.entries)
        wiring.connect(m, self.shared_entries.rings, self.receive_fetcher.entries)
        wiring.connect(m, receiver.stag, self.stag_table.clients[0])
        self._connect_placements(m)
        wiring.connect(m, self.placer.store, mpa_receiver.store)
        wiring.connect(m, receiver.delivery, self.delivery_gate.delivery)
        wiring.connect(m, receiver.inbound_requests, self.inbound_requests.writer)
        wiring.connect(m, receiver.outstanding_requests, self.outstanding_requests.reader)
        m.d.comb += [
            receiver.running.eq(self.qp_states.running),
            self.delivery_gate.placed.eq(self.write_engine.clients[0].done),
            self.delivery_gate.placed_error.eq(self.write_engine.clients[0].error),
        ]
        wiring.connect(m, receiver.first_segment, self.qp_states.first_segment)
        delivered, gate = self.delivery_gate.request_released, self.request_gate
        held = self.inbound_requests.release
        m.d.comb += [
            gate.i.valid.eq(delivered.valid),
            gate.i.qp.eq(delivered.qp),
            gate.accepted.eq(self.ring_writer.accepted),
            gate.finished.eq(self.ring_writer.finished),
            self.delivery_gate.request_room.eq(gate.room),
            held.valid.eq(gate.o.valid),
            held.qp.eq(gate.o.qp),
        ]
        wiring.connect(m, self.delivery_gate.read_done, self.completer.read_done)
        wiring.connect(m, self.delivery_gate.completion, self.ring_writer.receive)

    def _connect_placements(self, m: Module) -> None:
        """Receiver to placer, with the QP of each placement kept until its write responses."""
        errors, gate = self.host_errors, self.placement_gate
        written = self.write_engine.clients[0]
        wiring.connect(m, self.receiver.placement, gate.i)
        wiring.connect(m, gate.o, self.placer.placement)
        m.d.comb += [
            gate.room.eq(errors.room),
            errors.placement_begun.valid.eq(gate.begun.valid),
            errors.placement_begun.qp.eq(gate.begun.qp),
            errors.placement_done.eq(written.done),
            errors.placement_error.eq(written.error),
            self.delivery_gate.failed.eq(errors.write_failures),
            errors.read_failed.valid.eq(self.framer.spoiled.valid),
            errors.read_failed.qp.eq(self.framer.spoiled.qp),
            self.completer.failed.eq(errors.read_failures),
            errors.command.eq(self.commands.qp_command.payload),
        ]
        m.d.sync += [
            self.placed.eq(written.done),
            # A cycle later; the command stays as it is.
            errors.command_taken.eq(
                self.commands.qp_command.valid & self.commands.qp_command.ready
            ),
        ]

    def _connect_transmit_path(self, m: Module) -> None:
        transmitter, llp = self.transmitter, self.llp
        wiring.connect(m, self.scheduler.pick, transmitter.work)
        wiring.connect(m, transmitter.send_entries, self.send_fetcher.entries)
        wiring.connect(m, transmitter.inbound_requests, self.inbound_requests.reader)
        wiring.connect(m, transmitter.outstanding_requests, self.outstanding_requests.writer)
        wiring.connect(m, transmitter.stag, self.stag_table.clients[1])
        wiring.connect(m, transmitter.stag_change, self.stag_table.change)
        m.d.comb += [
            transmitter.running.eq(self.qp_states.running),
            transmitter.job_finished.valid.eq(self.framer.finished.valid),
            transmitter.job_finished.qp.eq(self.framer.finished.qp),
            transmitter.stag_refused.eq(self.stag_table.refused),
            transmitter.may_send.eq(self.qp_states.may_send),
            transmitter.retired.valid.eq(self.completer.retired.valid),
            transmitter.retired.qp.eq(self.completer.retired.qp),
        ]
        kicks = (
            transmitter.kick,
            self.send_fetcher.filled,
            self.request_gate.o,
            self.receiver.read_space,
            self.completer.retired,
            self.qp_states.released,
            transmitter.answered,
            transmitter.responses_left,
        )
        for kick, port in zip(kicks, self.scheduler.kicks, strict=True):
            m.d.comb += [port.valid.eq(kick.valid), port.qp.eq(kick.qp)]

        self._queue(m, "pieces", transmitter.piece, self.gather.piece, PIECES_AHEAD)
        m.submodules.newest_job = newest = StreamSlot(self.layouts.ulpdu_job)
        wiring.connect(m, transmitter.job, newest.i)
        jobs = newest.o
        for number in range(JOB_QUEUES):
            queue = StreamFifo(self.layouts.ulpdu_job, JOBS_IN_QUEUE)
            m.submodules[f"jobs_{number}"] = queue
            wiring.connect(m, jobs, queue.i)
            jobs = queue.o
        wiring.connect(m, jobs, self.assembler.job)
        wiring.connect(m, transmitter.inline, self.gather.inline)
        wiring.connect(m, self.gather.o, self.assembler.payload)
        wiring.connect(m, self.assembler.o, self.framer.i)
        wiring.connect(m, self.assembler.framer_job, self.framer.job)
        gate = self.invalidation_gate
        wiring.connect(m, self.framer.sent, gate.i)
        wiring.connect(m, gate.o, self.completer.sent)
        m.d.comb += [
            gate.placing.eq(self.receiver.placing),
            gate.begun.eq(self.placement_gate.begun.valid),
            gate.placed.eq(self.placed),
        ]
        tx = self.framer.tx
        if self.config.data_width != WORD_WIDTH:
            m.submodules.llp_transmit_width = width = LlpTransmitWidth(self.config)
            wiring.connect(m, tx, width.i)
            tx = width.o
        m.d.comb += [
            llp.tx_valid.eq(tx.valid),
            llp.tx_connection.eq(tx.p.connection),
            llp.tx_data.eq(tx.p.data),
            llp.tx_octets.eq(tx.p.octets),
            llp.tx_first.eq(tx.p.first),
            llp.tx_last.eq(tx.p.last),
            llp.tx_close.eq(tx.p.close),
            tx.ready.eq(llp.tx_ready),
        ]
        self._connect_llp_events(m)

    def _connect_atomics(self, m: Module) -> None:
        """The atomic unit, and those who wait until it has done what it was asked."""
        transmitter, unit, drain = self.transmitter, self.atomic_unit, self.atomic_drain
        wiring.connect(m, transmitter.atomic_request, unit.request)
        wiring.connect(m, unit.response, transmitter.atomic_response)
        m.d.comb += [
            drain.begin.eq(transmitter.atomic_begun.valid),
            drain.cancel.eq(transmitter.atomic_refused.valid),
            drain.end.eq(unit.response.valid & unit.response.ready),
            self.transmit_drain.visit_begin.eq(transmitter.begin),
            self.transmit_drain.visit_end.eq(transmitter.end),
            self.transmit_drain.job_begin.eq(transmitter.job_begin),
            self.transmit_drain.job_end.eq(self.framer.finished.valid),
            self.transmit_drain.mark.eq(self.delivery_gate.mark),
            self.delivery_gate.passed.eq(self.transmit_drain.passed & drain.passed[2]),
            # After the visits, which begin them: with placements and FPDUs.
            drain.mark.eq(
                Cat(self.fence.mark_1, self.invalidation_gate.mark, self.delivery_gate.mark)
            ),
            Cat(self.fence.passed_1, self.invalidation_gate.passed).eq(drain.passed),
            self.receiver.strict.eq(self.registers.settings.strict_rfc7306),
            transmitter.strict.eq(self.registers.settings.strict_rfc7306),
        ]

    def _connect_llp_events(self, m: Module) -> None:
        """Every event goes to the direction it is about; CLOSED to both."""
        llp, layouts = self.llp, self.layouts
        m.submodules.llp_events = events = Fork(layouts.llp_event, 2)
        kind = Signal(LlpEventKind)
        m.d.comb += [
            kind.eq(llp.event_kind),
            events.i.valid.eq(llp.event_valid),
            events.i.p.connection.eq(llp.event_connection),
            events.i.p.kind.eq(kind),
            events.i.p.value.eq(llp.event_value),
            llp.event_ready.eq(events.i.ready),
        ]
        wanted = (
            (self.mpa_receiver, (LlpEventKind.RX_AVAILABLE, LlpEventKind.CLOSED)),
            (
                self.transmitter,
                (LlpEventKind.TX_WINDOW, LlpEventKind.EMSS, LlpEventKind.CLOSED),
            ),
        )
        for output, (block, kinds) in zip(events.o, wanted, strict=True):
            mine = Signal()
            for one in kinds:
                with m.If(output.p.kind == one):
                    m.d.comb += mine.eq(1)
            m.d.comb += [
                block.llp_event.payload.eq(output.payload),
                block.llp_event.valid.eq(output.valid & mine),
                output.ready.eq(block.llp_event.ready | ~mine),
            ]

    def _connect_queues(self, m: Module) -> None:
        wiring.connect(m, self.completer.completion, self.ring_writer.send)
        errors = (
            self.receiver.error,
            self.transmitter.error,
            self.send_fetcher.error,
            self.srq_events.error,
            self.ring_writer.overflow,
            self.host_errors.read_error,
            self.host_errors.write_error,
        )
        for error, port in zip(errors, self.qp_states.errors, strict=True):
            if error is self.transmitter.error:
                # The transmitter takes a termination only when its own error is out of the way.
                m.submodules.transmit_errors = slot = StreamSlot(self.layouts.qp_error)
                wiring.connect(m, error, slot.i)
                error = slot.o
            wiring.connect(m, error, port)
        srq_events = self.srq_events
        wiring.connect(m, self.receive_fetcher.error, srq_events.ring_error)
        wiring.connect(m, self.qp_states.event, srq_events.qp_event)
        wiring.connect(m, srq_events.event, self.ring_writer.event)
        wiring.connect(m, self.qp_states.termination, self.transmitter.termination)

        gate = self.delivery_gate

        def passes(port: Any) -> Any:
            return port.valid & port.ready

        received = Signal()
        m.d.comb += [
            received.eq(passes(gate.delivery) & (gate.delivery.p.kind == DeliveryKind.RECEIVE)),
            self.shared_entries.delivered.valid.eq(received),
            self.shared_entries.delivered.qp.eq(gate.delivery.p.qp),
            srq_events.reached.valid.eq(self.shared_entries.reached.valid),
            srq_events.reached.qp.eq(self.shared_entries.reached.qp),
        ]
        pairs = (
            (
                # Those of a stopped QP are gone before another connection has its number.
                (self.mpa_receiver.queued, self.receiver.end),
                (self.transmitter.begin, self.transmitter.end),
            ),
            (
                (self.placement_gate.begun.valid, self.placed),
                (self.transmitter.job_begin, self.framer.finished.valid),
            ),
            (
                (received, passes(gate.completion) | gate.dropped_receive),
                (
                    passes(gate.delivery) & (gate.delivery.p.kind == DeliveryKind.READ),
                    passes(gate.read_done) | gate.dropped_read,
                ),
                (
                    passes(gate.delivery) & (gate.delivery.p.kind == DeliveryKind.REQUEST),
                    gate.request_released.valid | gate.dropped_request,
                ),
                (self.framer.reported, passes(self.completer.sent)),
            ),
            (
                (
                    passes(self.completer.sent) | passes(self.completer.read_done),
                    self.completer.finished,
                ),
                (gate.request_released.valid, self.request_gate.o.valid),
            ),
            ((self.ring_writer.accepted, self.ring_writer.finished),),
        )
        for stage, stage_pairs in enumerate(pairs):
            m.d.comb += [
                getattr(self.fence, f"begin_{stage}").eq(Cat(begin for begin, _ in stage_pairs)),
                getattr(self.fence, f"end_{stage}").eq(Cat(end for _, end in stage_pairs)),
            ]

    def _connect_commands(self, m: Module) -> None:
        commands = self.commands
        listeners = (
            self.mpa_receiver,
            self.receiver,
            self.transmitter,
            self.send_fetcher,
            self.receive_fetcher,
            self.completer,
            self.delivery_gate,
            self.shared_entries,
            self.srq_events,
        )
        knowing_rings = (self.receive_fetcher, self.shared_entries, self.srq_events)
        m.submodules.qp_commands = fork = Fork(self.layouts.qp_command, len(listeners))
        wiring.connect(m, commands.qp_command, fork.i)
        for output, block in zip(fork.o, listeners, strict=True):
            of_ring = Value.cast(output.p.kind) >= QpCommandKind.RING_CREATE.value
            mine = Const(1) if block in knowing_rings else ~of_ring
            m.d.comb += [
                block.qp_command.payload.eq(output.payload),
                block.qp_command.valid.eq(output.valid & mine),
                output.ready.eq(block.qp_command.ready | ~mine),
            ]
        wiring.connect(m, commands.state_command, self.qp_states.qp_command)
        command = commands.qp_command
        fresh = (command.p.kind == QpCommandKind.CREATE) | (command.p.kind == QpCommandKind.CONNECT)
        # A cycle later; nothing is pushed, and no completion is lost, before the QP runs.
        for clear in (
            self.inbound_requests.clear,
            self.outstanding_requests.clear,
            self.ring_writer.forget,
        ):
            m.d.sync += [
                clear.valid.eq(command.valid & command.ready & fresh),
                clear.qp.eq(command.p.qp),
            ]
        wiring.connect(m, commands.stag_write, self.stag_table.write)
        wiring.connect(m, commands.stag_invalidate, self.stag_table.invalidate[0])
        wiring.connect(m, self.receiver.invalidate, self.stag_table.invalidate[1])
        wiring.connect(m, commands.cq_command, self.ring_writer.cq_command)
        m.d.comb += [
            self.stag_table.clear.eq(commands.stag_clear),
            commands.stag_clearing.eq(self.stag_table.clearing),
            self.fence.start.eq(commands.fence_start),
            commands.fence_busy.eq(self.fence.busy),
        ]

    def _connect_registers(self, m: Module) -> None:
        registers, config = self.registers, self.config
        wiring.connect(m, wiring.flipped(self.s_axi), registers.bus)
        for name in staging_registers():
            m.d.comb += getattr(self.commands, name).eq(getattr(registers, name))
        m.d.comb += [
            self.commands.opcode.valid.eq(registers.command.valid),
            self.commands.opcode.payload.eq(registers.command.p.opcode),
            registers.command.ready.eq(self.commands.opcode.ready),
            # A command is also under way while it waits to be taken
            registers.command_status.busy.eq(self.commands.busy | registers.command.valid),
            registers.command_status.invalid.eq(self.commands.invalid),
            self.qp_states.query_qp.eq(registers.qp_number.qp),
            registers.qp_state.state.eq(self.qp_states.query_state),
            registers.qp_state.cause.eq(self.qp_states.query_cause),
            self.shared_entries.query_qp.eq(registers.qp_number.qp),
            registers.qp_taken.taken.eq(self.shared_entries.taken),
            registers.qp_taken.index.eq(self.shared_entries.taken_index),
            self.ring_writer.query_ring.eq(registers.cq_number.cq),
            registers.cq_answered.entries.eq(self.ring_writer.query_answered),
            registers.events_lost.events.eq(self.ring_writer.dropped_events),
            registers.queues.qps.eq(config.qps),
            registers.queues.cqs.eq(config.cqs),
            registers.limits.stags_log2.eq((config.stags - 1).bit_length()),
            registers.limits.read_queue_depth.eq(config.read_queue_depth),
            registers.limits.pending_sends.eq(config.pending_sends),
            registers.capabilities.immediate_data.eq(1),
            registers.capabilities.atomics.eq(1),
            registers.capabilities.counters.eq(int(config.counters)),
            registers.capabilities.srq.eq(1),
            registers.capabilities.swap.eq(~registers.settings.strict_rfc7306),
        ]
        # A doorbell of a ring that does not exist is taken and ignored. Its word is there before it
        # is valid.
        for doorbell, fetcher in (
            (registers.send_doorbell, self.send_fetcher),
            (registers.receive_doorbell, self.receive_fetcher),
        ):
            exists = Signal()
            m.d.sync += exists.eq(doorbell.p.qp < config.qps)
            m.d.comb += [
                fetcher.doorbell.valid.eq(doorbell.valid & exists),
                fetcher.doorbell.p.qp.eq(doorbell.p.qp),
                fetcher.doorbell.p.producer.eq(doorbell.p.producer),
                doorbell.ready.eq(fetcher.doorbell.ready | ~exists),
            ]
        cq_doorbell = self.ring_writer.cq_doorbell
        exists = Signal()
        m.d.sync += exists.eq(registers.cq_doorbell.p.cq <= config.cqs)
        m.d.comb += [
            cq_doorbell.valid.eq(registers.cq_doorbell.valid & exists),
            cq_doorbell.p.cq.eq(registers.cq_doorbell.p.cq),
            cq_doorbell.p.consumer.eq(registers.cq_doorbell.p.consumer),
            cq_doorbell.p.arm.eq(registers.cq_doorbell.p.arm),
            cq_doorbell.p.solicited.eq(registers.cq_doorbell.p.solicited),
            registers.cq_doorbell.ready.eq(cq_doorbell.ready | ~exists),
            registers.interrupt_status_set.completion.eq(self.ring_writer.completion_interrupt),
            registers.interrupt_status_set.event.eq(self.ring_writer.event_interrupt),
        ]
        raised = registers.interrupt_status.as_value() & registers.interrupt_enable.as_value()
        m.d.sync += self.irq.eq(raised.any())
        self._count(m)

    def _connect_counters(self, m: Module) -> None:
        registers, config = self.registers, self.config
        m.submodules.counters = counters = Counters(config)
        job, segment = self.assembler.job, self.mpa_receiver.segment
        fpdus = (
            (counters.sent, job, ~job.p.empty),
            (counters.received, segment, segment.p.kind == SegmentKind.FPDU),
        )
        for event, source, is_fpdu in fpdus:
            header = data.View(UNTAGGED_HEADER, source.p.header[: UNTAGGED_HEADER.size])
            m.d.comb += [
                event.valid.eq(source.valid & source.ready & is_fpdu),
                event.qp.eq(source.p.qp),
                event.ulpdu_length.eq(source.p.ulpdu_length),
                event.last.eq(header.control.last),
                event.opcode.eq(data.View(RDMAP_CONTROL, header.rsvd_ulp).opcode),
            ]
        stopped, command = self.qp_states.event, self.commands.qp_command
        selected = registers.counter_select
        m.d.comb += [
            counters.dropped.eq(self.receiver.dropped),
            counters.stopped.valid.eq(stopped.valid & stopped.ready),
            counters.stopped.cause.eq(stopped.p.cause),
            counters.connect.valid.eq(
                command.valid & command.ready & (command.p.kind == QpCommandKind.CONNECT)
            ),
            counters.connect.qp.eq(command.p.qp),
            counters.query.valid.eq(selected.valid),
            counters.query.p.counter.eq(selected.p.counter),
            counters.query.p.index.eq(selected.p.index),
            selected.ready.eq(counters.query.ready),
            registers.counter_low.value.eq(counters.value[:32]),
            registers.counter_high.value.eq(counters.value[32:]),
            registers.counter_lost.value.eq(counters.lost),
        ]

    def _count(self, m: Module) -> None:
        registers = self.registers
        cycles = Signal(64)
        high = Signal(32)
        m.d.sync += cycles.eq(cycles + 1)
        low_register = address_of("CYCLES_LOW")
        with m.If(registers.read & (registers.read_address == low_register)):
            m.d.sync += high.eq(cycles[32:])
        sent = Signal(32)
        received = Signal(32)
        segment = self.mpa_receiver.segment
        sends = self.framer.tx
        sends_one, receives_one = Signal(), Signal()
        m.d.sync += [
            sends_one.eq(sends.valid & sends.ready & sends.p.last & (sends.p.octets != 0)),
            receives_one.eq(segment.valid & segment.ready & (segment.p.kind == SegmentKind.FPDU)),
        ]
        with m.If(sends_one):
            m.d.sync += sent.eq(sent + 1)
        with m.If(receives_one):
            m.d.sync += received.eq(received + 1)
        m.d.comb += [
            registers.cycles_low.value.eq(cycles[:32]),
            registers.cycles_high.value.eq(high),
            registers.fpdus_sent.value.eq(sent),
            registers.fpdus_received.value.eq(received),
        ]
