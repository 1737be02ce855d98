"""The read engine: clients' commands become AXI read bursts, the words go back in order."""

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.axi import AxiReadSignature
from stagecoach.gateware.dma.buffers import ReservedQueue
from stagecoach.gateware.dma.bursts import AXI_BURST_INCR, AXI_SIZE_WORD, BurstSplitter
from stagecoach.gateware.host_memory import READ_WORD, ReadClient
from stagecoach.gateware.stream.round_robin import choose_round_robin, preceded_round_robin

MAX_OUTSTANDING_BURSTS = 128


class ReadEngine(wiring.Component):
    """Reads host memory for several clients over one AXI port.

    A client sends commands of 1 to 65535 bytes at any alignment and receives, for every command,
    the words that contain the bytes, in order, `last` with the final one and `error` with each
    word whose RRESP was not OKAY. It may send commands ahead of the data; they wait in order.

    Commands are cut into INCR bursts of at most `config.max_burst_beats` beats (or of the client's
    buffer, if that is smaller), none of them across a 4 KiB boundary. A burst is issued only when
    the client's buffer has room for all of it. So RREADY never waits for a client, and a client
    that does not take its data holds up nobody else. A client without a buffer takes every word in
    the cycle in which it is offered. Clients take turns burst by burst: a long
    command delays another client's command by one burst for each client. All bursts have ARID 0
    and come back in order; at most 128 are outstanding.

    One burst every two cycles is issued; words arrive at one per cycle, sustained if the client's
    buffer covers the latency (512 beats for 250 cycles). From a command to ARVALID in an idle
    engine 5 cycles; from R to the client's data 6 cycles, 1 without a buffer.

    Parameters
    ----------
    config: sizes of the device.
    buffer_beats: words of buffer for each client, powers of two from 2 on, or 0 for none.

    Members
    -------
    clients: the clients' ports, in the order of `buffer_beats`.
    m_axi: AR and R channels of the AXI master.
    """

    def __init__(self, config: RnicConfig, buffer_beats: Sequence[int]):
        if not buffer_beats:
            raise ValueError("ReadEngine buffer_beats is empty; allowed: one entry per client")
        for beats in buffer_beats:
            if beats < 0 or beats == 1 or beats & (beats - 1):
                raise ValueError(
                    f"ReadEngine buffer_beats has {beats!r}; allowed: 0, and powers of two from 2"
                )
        self._config = config
        self._buffer_beats = tuple(buffer_beats)
        super().__init__(
            {
                "clients": In(ReadClient()).array(len(buffer_beats)),
                "m_axi": Out(AxiReadSignature()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi = self.m_axi
        count = len(self._buffer_beats)
        client_bits = max(1, (count - 1).bit_length())

        m.submodules.order = order = fifo.SyncFIFOBuffered(
            width=client_bits + 1, depth=MAX_OUTSTANDING_BURSTS
        )
        order_layout = data.StructLayout({"client": client_bits, "last": 1})

        # What the slave sent, one cycle later.
        received = Signal(READ_WORD)
        received_for = Signal(count)

        take = Signal(count)  # one bit per client: its burst goes into the AR register
        fits = Signal(count)  # its burst is there and its buffer has room for it
        bursts = []
        for number, (client, depth) in enumerate(
            zip(self.clients, self._buffer_beats, strict=True)
        ):
            longest = self._config.max_burst_beats
            splitter = BurstSplitter(min(depth, longest) if depth else longest)
            m.submodules[f"splitter{number}"] = splitter
            bursts.append(splitter.o.payload)
            m.d.comb += [
                splitter.i.valid.eq(client.command.valid),
                splitter.i.payload.address.eq(client.command.payload.address),
                splitter.i.payload.octets.eq(client.command.payload.octets),
                client.command.ready.eq(splitter.i.ready),
                splitter.o.ready.eq(take[number]),
            ]
            if not depth:
                m.d.comb += [
                    client.data.valid.eq(received_for[number]),
                    client.data.payload.eq(received),
                ]
                m.d.sync += fits[number].eq(splitter.o.valid & ~take[number])
                continue
            queue = ReservedQueue(READ_WORD, depth)
            m.submodules[f"queue{number}"] = queue
            free = Signal(range(depth + 1), init=depth)
            freed = Signal(name=f"freed{number}")
            reserved = Signal(range(depth + 1))
            m.d.comb += [
                queue.push.eq(received_for[number]),
                queue.word.eq(received),
                client.data.valid.eq(queue.o.valid),
                client.data.payload.eq(queue.o.payload),
                queue.o.ready.eq(client.data.ready),
            ]
            with m.If(take[number]):
                m.d.comb += reserved.eq(splitter.o.payload.beats + 1)
            m.d.sync += [
                freed.eq(queue.freed),
                free.eq(free - reserved + freed),
                # Room only grows until the burst is taken, so a look one cycle old is good.
                fits[number].eq(
                    splitter.o.valid & (free > splitter.o.payload.beats) & ~take[number]
                ),
            ]

        # Choose a client; a cycle later load the AR register from it.
        latest = Signal(client_bits)
        choice = Signal(client_bits)
        granted = Signal(count)  # one bit per client: its burst is the next one
        loads = Signal()
        room = Signal()
        ar_free = Signal(init=1)  # the AR register is, with a low fan-out
        requests = [fits[number] & ~granted[number] for number in range(count)]
        choose_round_robin(m, requests, latest, choice)
        grant = Cat(requests) & ~preceded_round_robin(m, requests, latest)
        # At most every second cycle takes a burst, and another one may be on its way to `order`.
        m.d.sync += room.eq(order.level < MAX_OUTSTANDING_BURSTS - 1)
        m.d.comb += [
            take.eq(granted & (ar_free & room).replicate(count)),
            loads.eq(take.any()),
        ]
        with m.If(loads | ~granted.any()):
            m.d.sync += granted.eq(grant)
            with m.If(grant.any()):
                m.d.sync += latest.eq(choice)

        burst = Signal(bursts[0].shape())
        pushed = Signal(order_layout)
        m.d.comb += [
            burst.eq(Array(bursts)[latest]),
            order.w_data.eq(pushed),
            axi.arsize.eq(AXI_SIZE_WORD),
            axi.arburst.eq(AXI_BURST_INCR),
            axi.arid.eq(0),
        ]
        m.d.sync += [pushed.client.eq(latest), pushed.last.eq(burst.last), order.w_en.eq(loads)]
        with m.If(axi.arready):
            m.d.sync += [axi.arvalid.eq(0), ar_free.eq(1)]
        with m.If(loads):
            m.d.sync += [axi.arvalid.eq(1), ar_free.eq(0)]
        with m.If(~axi.arvalid):
            m.d.sync += [axi.araddr.eq(burst.address), axi.arlen.eq(burst.beats)]

        # The oldest burst says whose words arrive.
        head = Signal(order_layout)
        arrival = Signal()
        m.d.comb += [
            head.eq(order.r_data),
            axi.rready.eq(order.r_rdy),
            arrival.eq(axi.rvalid & axi.rready),
            order.r_en.eq(arrival & axi.rlast),
        ]
        m.d.sync += [
            received.data.eq(axi.rdata),
            received.last.eq(axi.rlast & head.last),
            received.error.eq(axi.rresp != 0),
        ]
        for number in range(count):
            m.d.sync += received_for[number].eq(arrival & (head.client == number))
        return m
