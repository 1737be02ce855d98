"""The atomic unit: reads, changes and writes words of host memory, for all QPs."""

from dataclasses import dataclass
from typing import Any

from amaranth import unsigned
from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.dma.bursts import WORD_BITS, WORD_OCTETS
from gateware.interfaces import MEMORY_COMMAND, WORD, ReadClient, WriteClient
from gateware.rdmap.atomic_arithmetic import LATENCY, OPERANDS, AtomicArithmetic
from gateware.stream_fifo import StreamFifo

ADDRESS_BITS = 64 - WORD_BITS

ATOMIC_OCTETS = 8
"""What an atomic reads and changes (RFC 7306, 5.1)."""

OPERATIONS = 16
"""Atomics that are in flight."""

COMPARED_AT_ONCE = 16
"""Address bits whose comparison goes into one register."""

LOOKUP_CYCLES = 3
"""From a request, or a new slot, until `hit` knows it."""


QUEUE_DEPTH = 4
"""Least depth of a queue that takes two items in successive cycles: one is on its way through."""


class AtomicStatus(enum.Enum, shape=unsigned(2)):
    """How an operation ended."""

    DONE = 0
    READ_ERROR = 1  # nothing was changed
    WRITE_ERROR = 2  # it is not known whether memory was changed


def request_layout(config: RnicConfig) -> data.StructLayout:
    """An Atomic Request that passed every check; `address` is a multiple of 8."""
    return data.StructLayout({"qp": config.qp_bits, "address": 64, "operands": OPERANDS})


def response_layout(config: RnicConfig) -> data.StructLayout:
    """Its answer; `original` means something if `status` is DONE."""
    return data.StructLayout({"qp": config.qp_bits, "original": 64, "status": AtomicStatus})


@dataclass(frozen=True)
class _Flags:
    """One bit per operation or slot, changed by masks; in one cycle `set` beats `clear`."""

    now: Signal
    set: Signal
    clear: Signal


def _first(m: Module, bits: Value, index: Signal) -> None:
    """Drive `index` with the number of the lowest bit that is set."""
    for number in reversed(range(len(bits))):
        with m.If(bits[number]):
            m.d.comb += index.eq(number)


class AtomicUnit(wiring.Component):
    """Carries out atomics so that each is one step against every other one of the device.

    `request` brings operations, at most one of a QP until its response is there, each when its QP
    may see what it returns: all earlier placements of the stream are visible. `response` brings
    each exactly one answer, when its own write, and any write whose value it returns, has its AXI
    response. Answers of different QPs come in any order; the effects have an order that explains
    all values returned, in which an operation that was answered before another came is earlier.

    One step is made at a time. Up to `operations` are in flight; those on different words overlap.
    Operations on a word that is in flight use its value on chip, without another read, if that
    value cannot be older than they are (docs/decisions/atomic-unit.md). An error of a read ends one
    operation and changes nothing; an error of a write ends the operation that wrote, and what was
    computed with its value and wrote nothing itself starts over.

    Latency, in cycles without those of host memory and of the engines: 7 to the read command, 12
    from the word to the write command, 8 from the write response to the response. Throughput: one
    operation every 19 cycles (17 on one word), or the latency of read and write divided by
    `operations` if that is more.
    `request` waits while `operations` are in flight, and a response that is not taken occupies one
    of these places; nothing else depends on `response.ready`.

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
        self._add_operations(m)
        self._add_slots(m)
        self._add_memory_access(m)
        self._find_slot(m)
        self._answer(m)
        self._step(m)
        return m

    def _flags(self, m: Module, name: str) -> _Flags:
        flags, raised, lowered = (
            Signal(self._count, name=prefix + name) for prefix in ("", "set_", "clear_")
        )
        m.d.sync += flags.eq(flags & ~lowered | raised)
        return _Flags(flags, raised, lowered)

    def _table(self, m: Module, name: str, shape: Any) -> tuple[Any, Any]:
        """A small memory in distributed RAM: its write port and its read port."""
        m.submodules[name] = memory = Memory(shape=shape, depth=self._count, init=[])
        return memory.write_port(), memory.read_port(domain="comb")

    def _add_operations(self, m: Module) -> None:
        count = self._count
        # Waits for its turn; may have it; the value of its slot is not older than itself.
        self._waiting = self._flags(m, "waiting")
        self._runnable = self._flags(m, "runnable")
        self._fresh = self._flags(m, "fresh")
        # Waits for the response to its write; to that of `writer_of`; for its answer to leave.
        self._writing = self._flags(m, "writing")
        self._depends = self._flags(m, "depends")
        self._done = self._flags(m, "done")
        self._active = Signal(count)
        self._slot_of = Array(Signal(range(count), name=f"slot_of_{i}") for i in range(count))
        self._writer_of = Array(Signal(range(count), name=f"writer_of_{i}") for i in range(count))
        self._status = Array(Signal(AtomicStatus, name=f"status_{i}") for i in range(count))
        self._operands_write, self._operands_read = self._table(m, "operands", OPERANDS)
        self._qps_write, self._qps_read = self._table(m, "qps_of", self._config.qp_bits)
        self._originals_write, self._originals_read = self._table(m, "originals", 64)

        self._free_operation = Signal(range(count))
        self._room = Signal()
        free = Signal(range(count))
        busy = Signal(count)
        m.d.comb += [
            self._active.eq(self._waiting.now | self._writing.now | self._depends.now),
            busy.eq(self._active | self._done.now),
        ]
        _first(m, ~busy, free)
        m.d.sync += [self._free_operation.eq(free), self._room.eq(~busy.all())]

    def _add_slots(self, m: Module) -> None:
        """A slot is a word of host memory that some operation in flight is about."""
        count = self._count
        self._live = self._flags(m, "live")
        self._open = self._flags(m, "open")  # its value may be used
        # A write failed: nothing is computed until all of them are answered.
        self._spoiled = self._flags(m, "spoiled")
        self._addresses = Array(Signal(ADDRESS_BITS, name=f"address_{i}") for i in range(count))
        self._writes = Array(Signal(range(count + 1), name=f"writes_{i}") for i in range(count))
        self._latest = Array(Signal(range(count), name=f"latest_{i}") for i in range(count))
        # `writes` was not 0, or was 1, a cycle ago: it changes every third cycle at most.
        self._written, self._written_once = Signal(count), Signal(count)
        m.d.sync += [
            self._written.eq(Cat(writes != 0 for writes in self._writes)),
            self._written_once.eq(Cat(writes == 1 for writes in self._writes)),
        ]
        self._values_write, self._values_read = self._table(m, "values", 64)
        self._targets_write, self._targets_read = self._table(m, "targets", ADDRESS_BITS)

        self._free_slot = Signal(range(count))
        free = Signal(range(count))
        _first(m, ~self._live.now, free)
        m.d.sync += self._free_slot.eq(free)

    def _add_memory_access(self, m: Module) -> None:
        """Queues with room for all operations: none of them is ever full."""
        self._to_memory: dict[str, Any] = {}
        owner = data.StructLayout({"operation": range(self._count), "slot": range(self._count)})
        depth = max(self._count, QUEUE_DEPTH)
        for name, port, shape in (
            ("read_commands", self.read.command, MEMORY_COMMAND),
            ("write_commands", self.write.command, MEMORY_COMMAND),
            ("write_words", self.write.data, WORD),
        ):
            m.submodules[name] = queue = StreamFifo(shape, depth)
            wiring.connect(m, queue.o, wiring.flipped(port))
            self._to_memory[name] = queue.i
        # The operation and the slot of each read and of each write, in order
        m.submodules.readers = self._readers = StreamFifo(owner, depth)
        m.submodules.writers = self._writers = StreamFifo(owner, depth)
        m.submodules.ends = self._ends = ends = SyncFIFOBuffered(width=1, depth=depth)
        m.d.sync += [ends.w_en.eq(self.write.done), ends.w_data.eq(self.write.error)]

    def _find_slot(self, m: Module) -> None:
        """Compare the request's address with those of all slots, in registers."""
        given = Signal(ADDRESS_BITS)
        m.d.sync += given.eq(self.request.p.address[WORD_BITS:])
        self._given = given
        self._hit = hit = Signal(self._count)
        for number, address in enumerate(self._addresses):
            parts = range(0, ADDRESS_BITS, COMPARED_AT_ONCE)
            equal = Signal(len(parts), name=f"equal_{number}")
            for part, low in enumerate(parts):
                high = low + COMPARED_AT_ONCE
                m.d.sync += equal[part].eq(given[low:high] == address[low:high])
            m.d.sync += hit[number].eq(equal.all() & self._live.now[number])
        self._hit_slot = Signal(range(self._count))
        _first(m, hit, self._hit_slot)

        looked = Signal(range(LOOKUP_CYCLES + 1))
        self._found = Signal()
        m.d.comb += self._found.eq(looked == LOOKUP_CYCLES)
        with m.If(self.request.ready | ~self.request.valid):
            m.d.sync += looked.eq(0)
        with m.Elif(~self._found):
            m.d.sync += looked.eq(looked + 1)

    def _answer(self, m: Module) -> None:
        """Send the answers, in turns among those that are done."""
        answered = Signal(range(self._count))
        later = Signal(self._count)
        after, lowest = Signal.like(answered), Signal.like(answered)
        for number in range(self._count):
            m.d.comb += later[number].eq(self._done.now[number] & (number > answered))
        _first(m, later, after)
        _first(m, self._done.now, lowest)
        m.d.comb += [self._originals_read.addr.eq(answered), self._qps_read.addr.eq(answered)]
        with m.FSM():
            # Waits for an operation that is done.
            with m.State("IDLE"):
                m.d.sync += answered.eq(Mux(later.any(), after, lowest))
                with m.If(self._done.now.any()):
                    m.next = "LOAD"
            # Its tables are read.
            with m.State("LOAD"):
                m.d.sync += [
                    self.response.p.qp.eq(self._qps_read.data),
                    self.response.p.original.eq(self._originals_read.data),
                    self.response.p.status.eq(self._status[answered]),
                    self.response.valid.eq(1),
                ]
                m.d.comb += self._done.clear.eq(1 << answered)
                m.next = "SEND"
            # Waits until the answer is taken.
            with m.State("SEND"):
                with m.If(self.response.ready):
                    m.d.sync += self.response.valid.eq(0)
                    m.next = "IDLE"

    def _step(self, m: Module) -> None:
        """One event at a time: everything that makes an operation one step is in here."""
        count = self._count
        operation = Signal(range(count))
        slot = Signal(range(count))
        mine = Signal(count)  # the bit of `operation`
        here = Signal(count)  # the bit of `slot`
        on_slot = Signal(count)  # operations that were those of `slot` a cycle ago, or `operation`
        event_slot = Signal(range(count))  # of the next write response, or else of the next word
        written, arrived = Signal(), Signal()  # there is one
        computed_from = Signal(count)  # operations that returned what `operation` wrote
        m.d.comb += [
            mine.eq(1 << operation),
            here.eq(1 << slot),
            computed_from.eq(
                self._depends.now & Cat(number == operation for number in self._writer_of)
            ),
        ]

        m.d.sync += [
            written.eq(self._ends.r_rdy),
            arrived.eq(self.read.data.valid),
            event_slot.eq(Mux(self._ends.r_rdy, self._writers.o.p.slot, self._readers.o.p.slot)),
        ]

        # Operations that can do something; those that need no read go first.
        chosen = Signal(range(count))
        choice_there = Signal()
        ready = Signal(count)
        ready_fresh = Signal(count)
        first, first_fresh = Signal.like(chosen), Signal.like(chosen)
        m.d.comb += [
            ready.eq(self._waiting.now & self._runnable.now),
            ready_fresh.eq(ready & self._fresh.now),
        ]
        _first(m, ready, first)
        _first(m, ready_fresh, first_fresh)
        m.d.sync += [
            chosen.eq(Mux(ready_fresh.any(), first_fresh, first)),
            choice_there.eq(ready.any()),
        ]

        m.submodules.arithmetic = arithmetic = AtomicArithmetic()
        value = Signal(64)
        operands = Signal(OPERANDS)
        computed = Signal(range(LATENCY))
        m.d.comb += [
            arithmetic.operands.eq(operands),
            arithmetic.original.eq(value),
            self._operands_read.addr.eq(operation),
            self._values_read.addr.eq(slot),
            self._targets_read.addr.eq(slot),
            self._operands_write.addr.eq(self._free_operation),
            self._operands_write.data.eq(self.request.p.operands),
            self._qps_write.addr.eq(self._free_operation),
            self._qps_write.data.eq(self.request.p.qp),
            self._originals_write.addr.eq(operation),
            self._originals_write.data.eq(value),
            self._values_write.addr.eq(slot),
            self._values_write.data.eq(arithmetic.result),
            self._targets_write.addr.eq(self._free_slot),
            self._targets_write.data.eq(self._given),
        ]

        word_address = Signal(ADDRESS_BITS)
        m.d.comb += word_address.eq(self._targets_read.data)
        read_commands, write_commands, write_words = self._to_memory.values()
        for command in (read_commands, write_commands):
            m.d.comb += [
                command.p.address.eq(Cat(Const(0, WORD_BITS), word_address)),
                command.p.octets.eq(WORD_OCTETS),
            ]
        m.d.comb += [
            write_words.p.data.eq(arithmetic.result),
            write_words.p.last.eq(1),
        ]
        for owners in (self._readers, self._writers):
            m.d.comb += [owners.i.p.operation.eq(operation), owners.i.p.slot.eq(slot)]

        failed = Signal()
        with m.FSM() as fsm:
            looked_at = Mux(fsm.ongoing("CHOOSE"), event_slot, slot)
            m.d.sync += on_slot.eq(Cat(number == looked_at for number in self._slot_of))

            # Waits for something to do.
            with m.State("CHOOSE"):
                m.d.sync += [failed.eq(self._ends.r_data), slot.eq(event_slot)]
                with m.If(written):
                    m.d.comb += [self._ends.r_en.eq(1), self._writers.o.ready.eq(1)]
                    m.d.sync += operation.eq(self._writers.o.p.operation)
                    m.next = "WRITTEN"
                with m.Elif(arrived):
                    m.d.comb += self._readers.o.ready.eq(1)
                    m.d.sync += operation.eq(self._readers.o.p.operation)
                    m.next = "ARRIVED"
                with m.Elif(choice_there):
                    m.d.sync += operation.eq(chosen)
                    m.next = "SELECT"
                with m.Elif(self._found & self._room):
                    m.next = "JOIN"

            # A request joins the operations of its word, or opens a slot and reads it.
            with m.State("JOIN"):
                entry = Signal(count)
                m.d.comb += [
                    entry.eq(1 << self._free_operation),
                    self.request.ready.eq(1),
                    self._operands_write.en.eq(1),
                    self._qps_write.en.eq(1),
                    self._waiting.set.eq(entry),
                ]
                m.d.sync += [
                    self._status[self._free_operation].eq(AtomicStatus.DONE),
                    operation.eq(self._free_operation),
                    # Alone on a slot that is opened; enough to keep one that was there.
                    on_slot.eq(entry),
                ]
                with m.If(self._hit.any()):
                    m.d.sync += [
                        slot.eq(self._hit_slot),
                        self._slot_of[self._free_operation].eq(self._hit_slot),
                    ]
                    with m.If((self._open.now & self._hit).any()):
                        m.d.comb += self._runnable.set.eq(entry)
                    with m.Else():
                        m.d.comb += self._runnable.clear.eq(entry)
                    # A write without a response: memory has no newer value than the slot.
                    with m.If((self._written & self._hit).any()):
                        m.d.comb += self._fresh.set.eq(entry)
                    with m.Else():
                        m.d.comb += self._fresh.clear.eq(entry)
                    m.next = "SETTLE"
                with m.Else():
                    m.d.comb += [
                        self._runnable.clear.eq(entry),
                        self._live.set.eq(1 << self._free_slot),
                        self._targets_write.en.eq(1),
                    ]
                    m.d.sync += [
                        slot.eq(self._free_slot),
                        self._slot_of[self._free_operation].eq(self._free_slot),
                        self._addresses[self._free_slot].eq(self._given),
                    ]
                    m.next = "READ"

            # The slot and the operands of the chosen operation are looked up, ...
            with m.State("SELECT"):
                m.d.sync += [
                    slot.eq(self._slot_of[operation]),
                    operands.eq(self._operands_read.data),
                ]
                m.next = "LOOK"
            # ... and the value of the slot.
            with m.State("LOOK"):
                m.d.sync += [value.eq(self._values_read.data), computed.eq(0)]
                with m.If((self._fresh.now & mine).any()):
                    m.next = "COMPUTE"
                with m.Else():
                    m.next = "READ"
            # The slot is read. No write of it is under way.
            with m.State("READ"):
                m.d.comb += [
                    read_commands.valid.eq(1),
                    self._readers.i.valid.eq(1),
                    self._runnable.clear.eq(on_slot),
                    self._fresh.set.eq(on_slot),
                    self._open.clear.eq(here),
                ]
                m.next = "SETTLE"

            # The word is there.
            with m.State("ARRIVED"):
                m.d.comb += [
                    self.read.data.ready.eq(1),
                    self._values_write.data.eq(self.read.data.p.data),
                    self._values_write.en.eq(1),
                    self._runnable.set.eq(on_slot),
                ]
                with m.If(self.read.data.p.error):
                    # The others read again; each has its own error.
                    m.d.comb += [
                        self._fresh.clear.eq(on_slot),
                        self._waiting.clear.eq(mine),
                        self._done.set.eq(mine),
                    ]
                    m.d.sync += self._status[operation].eq(AtomicStatus.READ_ERROR)
                with m.Else():
                    m.d.comb += self._open.set.eq(here)
                m.next = "SETTLE"

            # The result is computed.
            with m.State("COMPUTE"):
                m.d.sync += computed.eq(computed + 1)
                with m.If(computed == LATENCY - 1):
                    m.next = "COMPUTED"
            # The operation takes place.
            with m.State("COMPUTED"):
                m.d.comb += [self._originals_write.en.eq(1), self._waiting.clear.eq(mine)]
                with m.If(arithmetic.writes):
                    m.d.comb += [
                        self._values_write.en.eq(1),
                        write_commands.valid.eq(1),
                        write_words.valid.eq(1),
                        self._writers.i.valid.eq(1),
                        self._writing.set.eq(mine),
                        self._fresh.set.eq(on_slot),
                    ]
                    m.d.sync += [
                        self._writes[slot].eq(self._writes[slot] + 1),
                        self._latest[slot].eq(operation),
                    ]
                with m.Elif((self._written & here).any()):
                    m.d.comb += self._depends.set.eq(mine)
                    m.d.sync += self._writer_of[operation].eq(self._latest[slot])
                with m.Else():
                    m.d.comb += self._done.set.eq(mine)
                m.next = "SETTLE"

            # A write has its response.
            with m.State("WRITTEN"):
                m.d.comb += [
                    self._writing.clear.eq(mine),
                    self._depends.clear.eq(computed_from),
                    self._done.set.eq(mine),
                ]
                m.d.sync += self._writes[slot].eq(self._writes[slot] - 1)
                with m.If(failed):
                    m.d.comb += [
                        self._waiting.set.eq(computed_from),
                        self._open.clear.eq(here),
                        self._spoiled.set.eq(here),
                    ]
                    m.d.sync += self._status[operation].eq(AtomicStatus.WRITE_ERROR)
                with m.Else():
                    m.d.comb += self._done.set.eq(mine | computed_from)
                with m.If(failed | (self._spoiled.now & here).any()):
                    # Everything reads again, when the last write is answered.
                    m.d.comb += [
                        self._fresh.clear.eq(on_slot),
                        self._runnable.clear.eq(on_slot),
                    ]
                    with m.If((self._written_once & here).any()):
                        m.d.comb += [
                            self._runnable.set.eq(on_slot),
                            self._spoiled.set.eq(0),
                            self._spoiled.clear.eq(here),
                        ]
                m.next = "SETTLE"

            # A slot without operations is free. The choice follows what has changed.
            with m.State("SETTLE"):
                with m.If(~(self._active & on_slot).any()):
                    m.d.comb += [self._live.clear.eq(here), self._open.clear.eq(here)]
                m.next = "CHOOSE"
