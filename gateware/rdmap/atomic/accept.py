"""Takes atomics, has their words read, and looks for an earlier one on the same word."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS, RnicConfig
from stagecoach.gateware.dma.bursts import WORD_BITS
from stagecoach.gateware.host_memory import MEMORY_COMMAND
from stagecoach.gateware.layouts import OPERANDS
from stagecoach.gateware.rdmap.atomic.addresses import ADDRESS_BITS, AtomicAddresses
from stagecoach.gateware.rdmap.atomic.operations import (
    TableReader,
    earlier_layout,
    offer,
    request_layout,
)

RECALL_CYCLES = 4
"""Cycles of `again` up to the first one in which `selected` is the address of the operation that
starts over: `select` is its number in the second one, and `AtomicAddresses` takes two more."""


class AtomicAccept(wiring.Component):
    """Takes requests one by one, and begins an operation anew if its value was not written.

    Each request becomes an operation, numbered as they come, and each has a read of its own. While
    that is offered, the latest operation before it is looked for that is on the same word and not
    settled: it may still write, so the word that is read may be older than its value.

    An operation that starts over (`failed_under`) is alone: from `failed_under` on no request is
    taken, and when all were computed and all writes answered, its word is read once more. `again`
    says so until it is settled.

    Latency: 2 cycles from `request` to `command`, 5 from `again`. Throughput: a request every 8
    cycles, and 2 more for each operation in the chain of its bucket that has another address
    (`AtomicAddresses`). Each cycle in which `selects` holds up the search is one more.
    `request.ready` is a register and does not wait for `valid`. It is low while `count` operations
    are in flight, from `accepted` to `answered`; while write responses wait that were not looked
    at, since the word of an operation would else be read before they count; and while one starts
    over. If `command` is never taken, no further request is. If no operation is answered any more,
    no request is taken after `count` of them; if the one that starts over is never settled, none at
    all. Numbers wrap mod 2 * `count`.

    Parameters
    ----------
    count: operations in flight, a power of two.

    Members
    -------
    request: In(stream request_layout).
    command: Out(stream), a read of one word for each operation, in their order.
    accepted: Out, the number of the next operation: those before it are in the tables.
    computed, settled, answered: In, as `accepted`, of the later stages.
    operands, earlier, qps: In(TableReader), what is known of each operation.
    select, selects, selected: of `AtomicAddresses`: the word addresses of the operations. `select`
        is `settled` from the second cycle of `again` until the word of that operation comes.
    failed_under: In(1), the oldest operation that is not settled starts over; high until it is.
    writes_due: In(1), a write has begun and its response has not come.
    responses_wait: In(1), write responses came that were not looked at.
    settles: In(1), a pulse: `settled` goes on. Of the operation that starts over it comes after its
        `command` was taken.
    again: Out(1), that operation is begun anew, and `command` is its read.
    """

    def __init__(self, config: RnicConfig, count: int):
        self._config = config
        self._count = count
        entry, number = range(count), range(2 * count)
        super().__init__(
            {
                "request": In(stream.Signature(request_layout(config))),
                "command": Out(stream.Signature(MEMORY_COMMAND)),
                "accepted": Out(number),
                "computed": In(number),
                "settled": In(number),
                "answered": In(number),
                "operands": In(TableReader(OPERANDS, count)),
                "earlier": In(TableReader(earlier_layout(count), count)),
                "qps": In(TableReader(config.qp_bits, count)),
                "select": In(entry),
                "selects": In(1),
                "selected": Out(ADDRESS_BITS),
                "failed_under": In(1),
                "writes_due": In(1),
                "responses_wait": In(1),
                "settles": In(1),
                "again": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request, command, count = self.request, self.command, self._count
        m.submodules.addresses = addresses = AtomicAddresses(count)
        m.submodules.operands = operands = Memory(shape=OPERANDS, depth=count, init=[])
        m.submodules.qps = qps = Memory(shape=self._config.qp_bits, depth=count, init=[])
        m.submodules.earlier = earlier = Memory(shape=earlier_layout(count), depth=count, init=[])
        offer(m, operands, self.operands)
        offer(m, qps, self.qps)
        offer(m, earlier, self.earlier)

        entry = self.accepted[:-1]
        in_flight = Signal.like(self.accepted)
        willing = Signal()
        alone = Signal()  # one that starts over is; as it was a cycle ago
        within = Signal.like(entry)
        recalled = Signal(range(RECALL_CYCLES))
        idle = Signal(init=1)  # the state is IDLE; of its own, for the wide register of the word
        write_operands, write_qp = operands.write_port(), qps.write_port()
        write_earlier = earlier.write_port()
        for port in (write_operands, write_qp, write_earlier):
            m.d.comb += port.addr.eq(entry)
        # Without responses that wait, those before `settled` are the ones that cannot write.
        may_write = (self.accepted - self.settled)[: len(within)]
        m.d.comb += [
            write_operands.data.eq(request.p.operands),
            write_operands.en.eq(request.ready),
            write_qp.data.eq(request.p.qp),
            write_qp.en.eq(request.ready),
            addresses.entry.eq(entry),
            addresses.address.eq(request.p.address[WORD_BITS:]),
            addresses.take.eq(idle),
            addresses.within.eq(may_write),
            addresses.select.eq(self.select),
            addresses.selects.eq(self.selects),
            self.selected.eq(addresses.selected),
            write_earlier.data.latest.eq(addresses.latest),
            write_earlier.data.within.eq(Mux(addresses.found, within, 0)),
            in_flight.eq(self.accepted - self.answered),
            willing.eq(~in_flight[-1] & ~self.responses_wait & ~self.failed_under),
            command.p.address.eq(Cat(Const(0, WORD_BITS), addresses.word)),
            command.p.octets.eq(WORD_OCTETS),
        ]
        m.d.sync += [
            request.ready.eq(0),
            recalled.eq(0),
            addresses.recall.eq(0),
            alone.eq(self.failed_under & (self.computed == self.accepted) & ~self.writes_due),
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
                with m.Elif(alone & self.failed_under):
                    m.d.sync += [self.again.eq(1), idle.eq(0)]
                    m.next = "RECALL"
                with m.Else():
                    m.d.sync += request.ready.eq(willing)
            # Its word is read.
            with m.State("ASK"):
                m.d.sync += command.valid.eq(1)
                m.next = "SEARCH"
            # Which operation was on it before? What is written last counts.
            with m.State("SEARCH"):
                m.d.comb += write_earlier.en.eq(1)
                with m.If(addresses.found | addresses.missed):
                    m.d.sync += self.accepted.eq(self.accepted + 1)
                    m.next = "READ"
            # Waits until its read was taken.
            with m.State("READ"):
                with m.If(~command.valid):
                    m.d.sync += [request.ready.eq(willing), idle.eq(1)]
                    m.next = "IDLE"
            # The address of the one that starts over is read. No search wants that port then.
            with m.State("RECALL"):
                m.d.sync += recalled.eq(recalled + 1)
                with m.If(recalled == RECALL_CYCLES - 1):
                    m.d.sync += addresses.recall.eq(1)
                    m.next = "RECALLED"
            # It is there in the next cycle.
            with m.State("RECALLED"):
                m.d.sync += command.valid.eq(1)
                m.next = "AGAIN"
            # Waits until it is settled.
            with m.State("AGAIN"):
                with m.If(self.settles):
                    m.d.sync += [self.again.eq(0), idle.eq(1)]
                    m.next = "IDLE"
        return m
