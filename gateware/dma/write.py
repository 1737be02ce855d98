"""The write engine: clients' commands and words become AXI write bursts."""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.dma.arbitration import choose_round_robin
from gateware.dma.axi import AxiWriteSignature
from gateware.dma.bursts import (
    AXI_BURST_INCR,
    AXI_SIZE_WORD,
    WORD_OCTETS,
    BurstSplitter,
    tagged_command,
)
from gateware.interfaces import WriteClient
from gateware.stream_buffer import StreamBuffer
from gateware.stream_fifo import StreamFifo

MAX_OUTSTANDING_BURSTS = 16

BURSTS_AHEAD = 4
"""Bursts that may wait for the W channel, so that it goes from one to the next without a gap."""


class WriteEngine(wiring.Component):
    """Writes host memory for several clients over one AXI port.

    A client sends commands of 1 to 65535 octets at any alignment, and for every command exactly
    the words that contain the octets, each at its lanes of the host address. The engine counts
    the words and does not look at their `last`. `done` pulses once a command, in order, when all
    its bursts were answered; `error` with it if an answer was not OKAY.

    Clients take turns command by command, and the words of a command are contiguous on the W
    channel, so a client must not send a command whose words depend on anything another client
    waits for. Commands are cut into INCR bursts of at most `config.max_burst_beats` beats, none
    of them across a 4 KiB boundary; octets outside the command have no strobe. All bursts have
    AWID 0; at most 16 are outstanding, counted from before AWVALID to the response.

    AW and W are independent: a burst is handed to both channels at once, AWVALID does not wait for
    data or WREADY, and WVALID does not wait for AWREADY. Slaves may take the two in any order, and
    W may be ahead of AW by the few bursts that are buffered. BREADY is high
    whenever a response can be due.

    One word per cycle, without a gap between bursts, and between commands that are there in time
    (commands of at least 8 words; each costs the command path at most 4 cycles). From a command in
    an idle engine to AWVALID 4 cycles, to WVALID 7.

    Members
    -------
    clients: the clients' ports.
    m_axi: AW, W and B channels of the AXI master.
    """

    def __init__(self, config: RnicConfig, clients: int = 2):
        if clients < 1:
            raise ValueError(f"WriteEngine clients is {clients!r}; allowed: 1 and more")
        self._config = config
        self._count = clients
        super().__init__(
            {
                "clients": In(WriteClient()).array(clients),
                "m_axi": Out(AxiWriteSignature(config.data_width)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi = self.m_axi
        client_bits = max(1, (self._count - 1).bit_length())

        # One command at a time, round robin
        command = Signal(tagged_command(client_bits))
        command_valid = Signal()
        latest = Signal(client_bits)
        choice = Signal(client_bits)
        requests = [client.command.valid for client in self.clients]
        choose_round_robin(m, requests, latest, choice)
        commands = Array([client.command.payload for client in self.clients])
        m.submodules.splitter = splitter = BurstSplitter(self._config.max_burst_beats, client_bits)
        m.d.comb += [
            splitter.i.valid.eq(command_valid),
            splitter.i.payload.eq(command),
        ]
        with m.If(command_valid):
            with m.If(splitter.i.ready):
                m.d.sync += command_valid.eq(0)
        with m.Else():
            m.d.sync += [
                command.address.eq(commands[choice].address),
                command.octets.eq(commands[choice].octets),
                command.tag.eq(choice),
                command_valid.eq(Cat(requests).any()),
            ]
            with m.If(Cat(requests).any()):
                m.d.sync += latest.eq(choice)
            for number, client in enumerate(self.clients):
                m.d.comb += client.command.ready.eq(requests[number] & (choice == number))

        # A burst goes to AW, to W and to the list of expected responses in the same cycle.
        burst = splitter.o.payload
        address_layout = data.StructLayout({"address": 64, "beats": 8})
        words_layout = data.StructLayout(
            {
                "beats": 8,
                "first": 1,
                "last": 1,
                "start_lane": 3,
                "end_lane": 3,
                "client": client_bits,
            }
        )
        response_layout = data.StructLayout({"client": client_bits, "last": 1})
        m.submodules.addresses = addresses = StreamBuffer(address_layout)
        m.submodules.words = words = StreamFifo(words_layout, BURSTS_AHEAD)
        m.submodules.next_words = next_words = StreamBuffer(words_layout)
        wiring.connect(m, words.o, next_words.i)
        m.submodules.responses = responses = fifo.SyncFIFOBuffered(
            width=response_layout.size, depth=MAX_OUTSTANDING_BURSTS
        )
        issue = Signal()
        words_in = Signal(words_layout)
        response_in = Signal(response_layout)
        m.d.comb += [
            issue.eq(splitter.o.valid & addresses.i.ready & words.i.ready & responses.w_rdy),
            splitter.o.ready.eq(addresses.i.ready & words.i.ready & responses.w_rdy),
            addresses.i.valid.eq(issue),
            addresses.i.payload.address.eq(burst.address),
            addresses.i.payload.beats.eq(burst.beats),
            words.i.valid.eq(issue),
            words_in.beats.eq(burst.beats),
            words_in.first.eq(burst.first),
            words_in.last.eq(burst.last),
            words_in.start_lane.eq(burst.start_lane),
            words_in.end_lane.eq(burst.end_lane),
            words_in.client.eq(burst.tag),
            words.i.payload.eq(words_in),
            responses.w_en.eq(issue),
            response_in.client.eq(burst.tag),
            response_in.last.eq(burst.last),
            responses.w_data.eq(response_in),
            axi.awvalid.eq(addresses.o.valid),
            addresses.o.ready.eq(axi.awready),
            axi.awaddr.eq(addresses.o.payload.address),
            axi.awlen.eq(addresses.o.payload.beats),
            axi.awsize.eq(AXI_SIZE_WORD),
            axi.awburst.eq(AXI_BURST_INCR),
            axi.awid.eq(0),
        ]

        self._write_words(m, next_words.o, words_layout)
        self._collect_responses(m, responses, response_layout)
        return m

    def _write_words(self, m: Module, words: Any, layout: data.StructLayout) -> None:
        """Move the words of the bursts from their clients to the W channel."""
        axi = self.m_axi
        w_layout = data.StructLayout({"data": 64, "strobe": WORD_OCTETS, "last": 1})
        m.submodules.w_buffer = w_buffer = StreamBuffer(w_layout)

        head = Signal(layout)
        active = Signal()
        current = Signal(layout)  # `beats` counts down
        last_beat = Signal()  # current.beats is 0
        selected = Signal(self._count)  # current.client, one bit per client; 0 while not active
        first_beat = Signal()  # of the command
        available = Signal()
        moved = Signal()
        load = Signal()

        m.d.comb += [
            head.eq(words.payload),
            available.eq((Cat(client.data.valid for client in self.clients) & selected).any()),
            moved.eq(available & w_buffer.i.ready),
            w_buffer.i.valid.eq(available),
            w_buffer.i.payload.last.eq(last_beat),
            load.eq(~active | (moved & last_beat)),
            words.ready.eq(load),
        ]
        for number, client in enumerate(self.clients):
            m.d.comb += client.data.ready.eq(selected[number] & w_buffer.i.ready)
        m.d.comb += w_buffer.i.payload.data.eq(
            Array([client.data.payload.data for client in self.clients])[current.client]
        )
        for lane in range(WORD_OCTETS):
            before = first_beat & (lane < current.start_lane)
            behind = last_beat & current.last & (lane > current.end_lane)
            m.d.comb += w_buffer.i.payload.strobe[lane].eq(~(before | behind))

        with m.If(load):
            m.d.sync += [
                active.eq(words.valid),
                current.eq(head),
                last_beat.eq(head.beats == 0),
                first_beat.eq(head.first),
                selected.eq(0),
            ]
            with m.If(words.valid):
                m.d.sync += selected.eq(1 << head.client)
        with m.Elif(moved):
            m.d.sync += [
                current.beats.eq(current.beats - 1),
                last_beat.eq(current.beats == 1),
                first_beat.eq(0),
            ]

        m.d.comb += [
            axi.wvalid.eq(w_buffer.o.valid),
            axi.wdata.eq(w_buffer.o.payload.data),
            axi.wstrb.eq(w_buffer.o.payload.strobe),
            axi.wlast.eq(w_buffer.o.payload.last),
            w_buffer.o.ready.eq(axi.wready),
        ]

    def _collect_responses(
        self, m: Module, responses: fifo.SyncFIFOBuffered, layout: data.StructLayout
    ) -> None:
        """Join the responses of a command's bursts to one `done`."""
        axi = self.m_axi
        answered = Signal()  # a response is in the register
        failed = Signal()  # it was not OKAY
        failed_before = Signal()  # one of the same command was not OKAY
        head = Signal(layout)
        retire = Signal()
        m.d.comb += [
            head.eq(responses.r_data),
            retire.eq(answered & responses.r_rdy),
            responses.r_en.eq(retire),
            axi.bready.eq(~answered | retire),
        ]
        with m.If(axi.bready):
            m.d.sync += [answered.eq(axi.bvalid), failed.eq(axi.bresp != 0)]
        with m.If(retire):
            m.d.sync += failed_before.eq((failed_before | failed) & ~head.last)
        for number, client in enumerate(self.clients):
            ends = retire & head.last & (head.client == number)
            m.d.sync += [
                client.done.eq(ends),
                client.error.eq(ends & (failed | failed_before)),
            ]
