"""The atomic unit: reads, changes and writes words of host memory, for all QPs."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS, RnicConfig
from stagecoach.gateware.dma.bursts import WORD_BITS
from stagecoach.gateware.host_memory import ReadClient, WriteClient
from stagecoach.gateware.layouts import OPERANDS
from stagecoach.gateware.rdmap.atomic.addresses import ADDRESS_BITS
from stagecoach.gateware.rdmap.atomic.arithmetic import LATENCY, AtomicArithmetic
from stagecoach.gateware.rdmap.atomic.operations import AtomicOperations, AtomicStatus
from stagecoach.gateware.rdmap.atomic.settling import answer, settle

OPERATIONS = 32
"""Atomics that are in flight: as many as come while one waits for 350 cycles, one every 11."""


def request_layout(config: RnicConfig) -> data.StructLayout:
    """An Atomic Request that passed every check; `address` is a multiple of 8."""
    return data.StructLayout({"qp": config.qp_bits, "address": 64, "operands": OPERANDS})


def response_layout(config: RnicConfig) -> data.StructLayout:
    """Its answer; `original` means something if `status` is DONE."""
    return data.StructLayout({"qp": config.qp_bits, "original": 64, "status": AtomicStatus})


class AtomicUnit(wiring.Component):
    """Carries out atomics so that each is one step against every other one of the device.

    `request` brings operations, at most one of a QP until its response is there, each when its QP
    may see what it returns: all earlier placements of the stream are visible. `response` brings
    each exactly one answer, when its own write, and any write whose value it returns, has its AXI
    response. Answers come in the order of the requests, and so do the effects.

    Up to `operations` are in flight, each with a read of its own. One that comes while an earlier
    one on its word may still write uses that one's value on chip instead of the word
    (docs/decisions/atomic-unit.md). An error of a read ends one operation and changes nothing; an
    error of a write ends the operation that wrote, and what was computed with its value and wrote
    nothing itself starts over.

    Latency, in cycles without those of host memory and of the engines: 2 to the read command, 9
    from the word to the write command, 5 from the write response to the response. Throughput: one
    operation every 11 cycles, on one word or on different ones, or the latency of read and write
    divided by `operations` if that is more. `request` is taken in 9 cycles, or 2 more for each
    operation in flight that has another address in its bucket (`AtomicAddresses`), which is rare.
    It waits while `operations` are in flight, and a response that is not taken occupies one of
    these places; nothing else depends on `response.ready`. If a read or a write never ends, what
    came after it never does, and after `operations` of them nothing more is taken.

    Parameters
    ----------
    config: sizes of the device.
    operations: how many are in flight, a power of two from 2 to 32.

    Members
    -------
    read: client of `dma/read.py`, whose buffer for it holds `operations` words.
    write: client of `dma/write.py`.
    """

    def __init__(self, config: RnicConfig, operations: int = OPERATIONS):
        if not 2 <= operations <= 32 or operations & (operations - 1):
            raise ValueError(
                f"AtomicUnit operations is {operations!r}; allowed: a power of two from 2 to 32"
            )
        self._config = config
        self._count = operations
        super().__init__(
            {
                "request": In(stream.Signature(request_layout(config))),
                "response": Out(stream.Signature(response_layout(config))),
                "read": Out(ReadClient()),
                "write": Out(WriteClient()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        operations = AtomicOperations(m, self._config, self._count)
        self._accept(m, operations)
        self._compute(m, operations)
        settle(m, operations, self.write)
        answer(m, operations, self.response)
        return m

    def _accept(self, m: Module, operations: AtomicOperations) -> None:
        """Take requests, read their words and find out whose values they may have to use."""
        request, command, addresses = self.request, self.read.command, operations.addresses
        entry = operations.accepted[:-1]
        in_flight = Signal.like(operations.accepted)
        willing = Signal()
        alone = Signal()  # one that starts over is; as it was a cycle ago
        within = Signal.like(entry)
        recalled = Signal(2)
        idle = Signal(init=1)  # the state is IDLE; of its own, for the wide register of the word
        operands, qps = operations.operands.write_port(), operations.qps.write_port()
        earlier = operations.earlier.write_port()
        for port in (operands, qps, earlier):
            m.d.comb += port.addr.eq(entry)
        # Without responses that wait, those before `settled` are the ones that cannot write.
        may_write = (operations.accepted - operations.settled)[: len(within)]
        m.d.comb += [
            operands.data.eq(request.p.operands),
            operands.en.eq(request.ready),
            qps.data.eq(request.p.qp),
            qps.en.eq(request.ready),
            addresses.entry.eq(entry),
            addresses.address.eq(request.p.address[WORD_BITS:]),
            addresses.take.eq(idle),
            addresses.within.eq(may_write),
            earlier.data.latest.eq(addresses.latest),
            earlier.data.within.eq(Mux(addresses.found, within, 0)),
            in_flight.eq(operations.accepted - operations.answered),
            willing.eq(~in_flight[-1] & ~operations.responses_wait & ~operations.failed_under),
            command.p.address.eq(Cat(Const(0, WORD_BITS), addresses.word)),
            command.p.octets.eq(WORD_OCTETS),
        ]
        m.d.sync += [
            request.ready.eq(0),
            recalled.eq(0),
            addresses.recall.eq(0),
            alone.eq(
                operations.failed_under
                & (operations.computed == operations.accepted)
                & (operations.responses_due == 0)
            ),
        ]
        with m.If(command.ready):
            m.d.sync += command.valid.eq(0)
        with m.FSM():
            # Waits for a request, or until one that starts over is alone.
            with m.State("IDLE"):
                m.d.sync += within.eq(may_write)
                with m.If(request.valid & request.ready):
                    m.d.comb += addresses.start.eq(1)
                    m.d.sync += idle.eq(0)
                    m.next = "ASK"
                with m.Elif(alone & operations.failed_under):
                    m.d.sync += [operations.again.eq(1), idle.eq(0)]
                    m.next = "RECALL"
                with m.Else():
                    m.d.sync += request.ready.eq(willing)
            # Its word is read.
            with m.State("ASK"):
                m.d.sync += command.valid.eq(1)
                m.next = "SEARCH"
            # Which operation was on it before? What is written last counts.
            with m.State("SEARCH"):
                m.d.comb += earlier.en.eq(1)
                with m.If(addresses.found | addresses.missed):
                    m.d.sync += operations.accepted.eq(operations.accepted + 1)
                    m.next = "READ"
            # Waits until its read was taken.
            with m.State("READ"):
                with m.If(~command.valid):
                    m.d.sync += [request.ready.eq(willing), idle.eq(1)]
                    m.next = "IDLE"
            # The address of the one that starts over is read, which nobody else does then.
            with m.State("RECALL"):
                m.d.sync += recalled.eq(recalled + 1)
                with m.If(recalled == 3):
                    m.d.sync += addresses.recall.eq(1)
                    m.next = "RECALLED"
            # It is there in the next cycle.
            with m.State("RECALLED"):
                m.d.sync += command.valid.eq(1)
                m.next = "AGAIN"
            # Waits until it is settled.
            with m.State("AGAIN"):
                with m.If(operations.settles):
                    m.d.sync += [operations.again.eq(0), idle.eq(1)]
                    m.next = "IDLE"

    def _compute(self, m: Module, operations: AtomicOperations) -> None:
        """Everything that makes an operation one step: they are computed one by one."""
        read, command, word = self.read.data, self.write.command, self.write.data
        m.submodules.arithmetic = arithmetic = AtomicArithmetic()
        number = Signal.like(operations.computed)
        value = Signal(64)
        read_failed = Signal()
        address = Signal(ADDRESS_BITS)
        earlier = Signal(operations.earlier.shape)
        before = Signal(operations.outcome)  # of that one
        age = Signal.like(number)  # operations between its writer and this one
        uses = Signal()  # the value of that writer
        steps = Signal(range(LATENCY))
        computes = Signal()
        outcome = Signal(operations.outcome)
        given = Signal(OPERANDS)
        begins = Signal()  # a write, when the operation takes place

        operands, earlier_read, before_read, result_read = (
            memory.read_port(domain="comb")
            for memory in (
                operations.operands,
                operations.earlier,
                operations.outcomes,
                operations.results,
            )
        )
        outcomes, originals, results = (
            memory.write_port()
            for memory in (
                operations.outcomes,
                operations.originals,
                operations.results,
            )
        )
        for port in (operands, earlier_read, outcomes, originals, results):
            m.d.comb += port.addr.eq(number)
        m.d.comb += [
            before_read.addr.eq(earlier.latest),
            result_read.addr.eq(before.writer),
            arithmetic.operands.eq(given),
            arithmetic.original.eq(value),
            outcome.wrote.eq(begins),
            outcome.read_failed.eq(read_failed),
            outcome.stored.eq(outcome.wrote | uses),
            outcome.writer.eq(Mux(outcome.wrote, number, before.writer)),
            outcomes.data.eq(outcome),
            originals.data.eq(value),
            results.data.eq(arithmetic.result),
            age.eq(number - before.writer - 1),
            command.p.address.eq(Cat(Const(0, WORD_BITS), address)),
            command.p.octets.eq(WORD_OCTETS),
            word.p.data.eq(arithmetic.result),
            word.p.last.eq(1),
            operations.addresses.select.eq(number),
        ]
        m.d.sync += [
            given.eq(operands.data),
            begins.eq(computes & (steps == LATENCY - 1) & arithmetic.will_write & ~read_failed),
        ]
        expects = Signal()  # a word; as it was a cycle ago, in which `computed` did not change
        m.d.sync += expects.eq(operations.again | (operations.computed != operations.accepted))
        m.d.sync += operations.responses_due.eq(operations.responses_due + begins - self.write.done)
        for port in (command, word):
            with m.If(port.ready):
                m.d.sync += port.valid.eq(0)
            with m.If(begins):
                m.d.sync += port.valid.eq(1)

        with m.FSM():
            # Waits for the word of the next one.
            with m.State("IDLE"):
                m.d.sync += [
                    value.eq(read.p.data),
                    read_failed.eq(read.p.error),
                    number.eq(Mux(operations.again, operations.settled, operations.computed)),
                    steps.eq(0),
                ]
                m.d.comb += read.ready.eq(expects)
                with m.If(expects & read.valid):
                    m.next = "LOOK"
            # Its address and the latest one before it are looked up, ...
            with m.State("LOOK"):
                m.d.comb += operations.addresses.selects.eq(1)
                m.d.sync += earlier.eq(earlier_read.data)
                m.next = "BEFORE"
            # ... what that one did, ...
            with m.State("BEFORE"):
                m.d.sync += before.eq(before_read.data)
                m.next = "AGE"
            # ... whether the word that was read may be older than that, ...
            with m.State("AGE"):
                m.d.sync += [
                    uses.eq(before.stored & (age < earlier.within) & ~operations.again),
                    address.eq(operations.addresses.selected),
                ]
                m.next = "VALUE"
            # ... and the value that it has then.
            with m.State("VALUE"):
                with m.If(uses):
                    m.d.sync += value.eq(result_read.data)
                m.next = "COMPUTE"
            # The result is computed.
            with m.State("COMPUTE"):
                m.d.comb += computes.eq(1)
                m.d.sync += steps.eq(steps + 1)
                with m.If(steps == LATENCY - 1):
                    m.next = "COMPUTED"
            # It takes place.
            with m.State("COMPUTED"):
                m.d.comb += [
                    outcomes.en.eq(1),
                    originals.en.eq(1),
                    results.en.eq(1),
                    operations.recomputed.eq(operations.again),
                ]
                m.d.sync += operations.computed.eq(operations.computed + ~operations.again)
                m.next = "WRITE"
            # Waits until its write was taken.
            with m.State("WRITE"):
                with m.If(~command.valid & ~word.valid):
                    m.next = "IDLE"
