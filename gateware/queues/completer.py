"""Completes send-queue work requests in the order in which they were posted."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind, QpStrobe
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.queues.qp_choice import bit_of_qp
from stagecoach.hw.interface.queue_entries import ANSWERED_OPERATIONS


def read_done_layout(config: RnicConfig) -> data.StructLayout:
    """The oldest outstanding RDMA Read or atomic of a QP is complete: its QP and bytes."""
    return data.StructLayout({"qp": config.qp_bits, "length": 32})


class SendCompleter(wiring.Component):
    """Holds work requests from their transmission until they may complete.

    `sent` brings the work requests of a QP in posting order, each when its last FPDU left. All of
    them may complete at once but RDMA Reads and atomics, which wait for a `read_done` of their QP;
    whatever was posted after one of these also waits (RFC 5040, 5.5). A `read_done` may come before
    the `sent` of its Read. An item that leaves pulses `retired`, after its completion was taken if
    it is signaled. QPs do not wait for each other, except for `completion` to be ready.

    From `sent` to completion: 6 cycles. An item that completes at once takes 6 cycles, and one that
    waits 5, or 6 after another one; a `read_done` takes 7, of which 3 are those of the item that it
    lets go, and 3 more for each further one. So an RDMA Read takes 12. A completion adds a cycle.
    `sent` and `read_done` take turns. At most `config.pending_sends` items of a QP may be inside.
    CREATE and DESTROY forget what is held of their QP; CREATE names its CQ.

    While the bit of a QP in `failed` is set, nothing of it completes: what it sent was not what it
    should be. `finished` pulses once for each `sent` and `read_done`, when all that they let go was
    taken.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        layouts = Layouts(config)
        # The QP says where the item stands.
        self._item = data.StructLayout(
            {name: field.shape for name, field in layouts.sent_item if name != "qp"}
        )
        super().__init__(
            {
                "sent": In(stream.Signature(layouts.sent_item)),
                "read_done": In(stream.Signature(read_done_layout(config))),
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "completion": Out(stream.Signature(layouts.completion)),
                "retired": Out(QpStrobe(config)),
                "finished": Out(1),
                "failed": In(config.qps),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        depth = config.pending_sends
        slot_bits = exact_log2(depth)
        reads_most = max(depth, config.read_queue_depth)

        state_layout = data.StructLayout(
            {
                "head": slot_bits + 1,
                "tail": slot_bits + 1,
                "reads": range(reads_most + 1),  # that are done and not yet completed
                "cq": config.cq_bits,
            }
        )
        m.submodules.states = states = Memory(
            shape=state_layout,
            depth=config.qps,
            init=[],
            attrs=NO_COLLISION | {"ram_style": "block"},
        )
        m.submodules.items = items = Memory(
            shape=self._item, depth=config.qps * depth, init=[], attrs=NO_COLLISION
        )
        states_read, states_write = states.read_port(), states.write_port()
        items_read, items_write = items.read_port(), items.write_port()

        qp = Signal(config.qp_bits)
        state = Signal(state_layout)
        item = Signal(self._item)
        item_arrived = Signal()
        read_arrived = Signal()
        forget = Signal()
        read_done_last = Signal()
        m.d.comb += [
            states_read.addr.eq(qp),
            states_write.addr.eq(qp),
            states_write.data.eq(state),
            items_read.addr.eq(Cat(state.head[:slot_bits], qp)),
            items_write.addr.eq(Cat(state.tail[:slot_bits], qp)),
            items_write.data.eq(item),
        ]
        with m.If(forget):
            m.d.comb += [
                states_write.data.head.eq(0),
                states_write.data.tail.eq(0),
                states_write.data.reads.eq(0),
            ]

        completion = self.completion
        m.d.sync += [self.retired.valid.eq(0), self.finished.eq(0)]
        m.d.comb += self.retired.qp.eq(completion.payload.qp)
        with m.If(completion.ready):
            m.d.sync += completion.valid.eq(0)

        qp_failed = bit_of_qp(m, self.failed, qp)
        # Known in time: `reads` never changes in the cycle before DECIDE.
        no_reads = Signal()
        is_read = Signal()  # or an atomic
        waits = Signal()
        commanded = Signal()

        def is_answered(opcode: Value) -> Value:
            return Cat(opcode == each for each in ANSWERED_OPERATIONS).any()

        m.d.sync += [
            no_reads.eq(state.reads == 0),
            is_read.eq(is_answered(item.opcode)),
            commanded.eq(self.qp_command.valid & ~self.qp_command.ready),
        ]
        m.d.comb += waits.eq(qp_failed | (is_read & no_reads))

        def finish() -> None:
            """Writes the state back: all that could go is gone."""
            m.d.comb += states_write.en.eq(1)
            m.d.sync += self.finished.eq(1)
            m.next = "IDLE"

        with m.FSM():
            # After a reset nothing is held.
            with m.State("FORGET_ALL"):
                m.d.comb += [forget.eq(1), states_write.en.eq(1)]
                m.d.sync += qp.eq(qp + 1)
                with m.If(qp == config.qps - 1):
                    m.next = "IDLE"
            # Waits for something to happen to a QP.
            with m.State("IDLE"):
                m.d.sync += [item_arrived.eq(0), read_arrived.eq(0)]
                m.d.sync += [item[name].eq(self.sent.payload[name]) for name, _ in self._item]
                reads_first = self.read_done.valid & ~(read_done_last & self.sent.valid)
                m.d.sync += qp.eq(Mux(reads_first, self.read_done.payload.qp, self.sent.payload.qp))
                with m.If(commanded):
                    m.next = "COMMAND"
                with m.Elif(reads_first):
                    m.d.sync += [read_arrived.eq(1), read_done_last.eq(1)]
                    m.next = "LOOK_UP"
                with m.Elif(self.sent.valid):
                    m.d.sync += [item_arrived.eq(1), read_done_last.eq(0)]
                    m.next = "LOOK_UP"
            # Takes the command.
            with m.State("COMMAND"):
                kind = self.qp_command.payload.kind
                m.d.comb += self.qp_command.ready.eq(1)
                m.d.sync += [
                    qp.eq(self.qp_command.payload.qp),
                    state.cq.eq(self.qp_command.payload.send_cq),
                ]
                m.next = "IDLE"
                with m.If((kind == QpCommandKind.CREATE) | (kind == QpCommandKind.DESTROY)):
                    m.next = "FORGET"
            # The QP is new or gone.
            with m.State("FORGET"):
                m.d.comb += [forget.eq(1), states_write.en.eq(1)]
                m.next = "IDLE"
            # The memory reads; what was seen in IDLE is taken.
            with m.State("LOOK_UP"):
                m.d.comb += [
                    self.read_done.ready.eq(read_arrived),
                    self.sent.ready.eq(item_arrived),
                ]
                m.next = "LOAD"
            # The state of the QP is here.
            with m.State("LOAD"):
                m.d.sync += state.eq(states_read.data)
                m.next = "ENTER"
            # Adds what arrived; the memory reads the oldest item, if there was one.
            with m.State("ENTER"):
                m.d.comb += items_write.en.eq(item_arrived)
                m.d.sync += [
                    state.tail.eq(state.tail + item_arrived),
                    state.reads.eq(state.reads + read_arrived),
                ]
                m.next = "TAKE"
                with m.If(item_arrived & (state.head == state.tail)):
                    # Alone: what arrived is the oldest and stands in `item`.
                    m.next = "DECIDE"
                with m.Elif(state.head == state.tail):
                    m.next = "STORE"
            # The oldest item is here.
            with m.State("TAKE"):
                m.d.sync += [
                    item.eq(items_read.data),
                    is_read.eq(is_answered(items_read.data.opcode)),
                ]
                m.next = "DECIDE"
            # Lets the oldest item go, unless it is a Read or atomic that is not done. Any
            # completion before it was taken.
            with m.State("DECIDE"):
                m.d.sync += [
                    completion.payload.eq(0),
                    completion.payload.qp.eq(qp),
                    completion.payload.cq.eq(state.cq),
                    completion.payload.index.eq(item.index),
                    completion.payload.opcode.eq(item.opcode),
                    completion.payload.length.eq(item.length),
                ]
                with m.If(waits):
                    finish()
                with m.Else():
                    m.d.sync += [
                        completion.valid.eq(item.signaled),
                        state.head.eq(state.head + 1),
                        state.reads.eq(state.reads - is_read),
                    ]
                    m.next = "RETIRE"
            # Waits until the completion was taken; the memory reads the next item, if there is one.
            with m.State("RETIRE"):
                with m.If(~completion.valid):
                    m.d.sync += self.retired.valid.eq(1)
                    m.next = "TAKE"
                    with m.If(state.head == state.tail):
                        finish()
            # An answer waits for its item.
            with m.State("STORE"):
                finish()

        return m
