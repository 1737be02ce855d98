"""The write engine: clients' commands and words become AXI write bursts."""

from collections.abc import Collection
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS, RnicConfig
from stagecoach.gateware.dma.axi import AxiWriteSignature
from stagecoach.gateware.dma.bursts import (
    AXI_BURST_INCR,
    AXI_SIZE_WORD,
    WORD_BITS,
    BurstSplitter,
    burst,
)
from stagecoach.gateware.host_memory import WriteClient
from stagecoach.gateware.stream.buffer import StreamBuffer
from stagecoach.gateware.stream.round_robin import choose_round_robin, preceded_round_robin

MAX_OUTSTANDING_BURSTS = 32

W_BURSTS = 2
"""Bursts on the W channel: one, and one that waits, so that it goes to that without a gap."""


class WriteEngine(wiring.Component):
    """Writes host memory for several clients over one AXI port.

    A client sends commands of 1 to 65535 bytes at any alignment, and for every command exactly
    the words that contain the bytes, each at its lanes of the host address. The engine counts
    the words and does not look at their `last`. `done` pulses once a command, in order, when all
    its bursts were answered; `error` with it if an answer was not OKAY.

    Commands are cut into INCR bursts of at most `config.max_burst_beats` beats, none of them
    across a 4 KiB boundary; bytes outside the command have no strobe. Those of `whole` clients are
    one burst each: they must not cross a multiple of `config.max_burst_beats` words. Clients take
    turns burst by burst: a long command delays another client's command by one burst for each
    client and those that wait for the W channel. The words of a burst are contiguous there, so a
    client must not send a command whose words depend on anything another client waits for. All
    bursts have AWID 0; at most 32 are outstanding, counted from before AWVALID to the response.

    AW and W are independent: a burst is handed to both channels at once, AWVALID does not wait for
    data or WREADY, and WVALID does not wait for AWREADY. Slaves may take the two in any order, and
    W may be ahead of AW by the few bursts that are buffered. BREADY is high
    whenever a response can be due.

    One word per cycle, without a gap between bursts and between commands, but two cycles at least
    for each burst. From a command of a `whole` client in an idle engine to AWVALID 2 cycles, to
    WVALID 3; of another one 2 cycles more. From B to `done` 1 cycle.

    Parameters
    ----------
    config: sizes of the device.
    clients: their number.
    whole: numbers of the clients whose commands are one burst each.

    Members
    -------
    clients: the clients' ports.
    m_axi: AW, W and B channels of the AXI master.
    """

    def __init__(self, config: RnicConfig, clients: int = 2, whole: Collection[int] = ()):
        if clients < 1:
            raise ValueError(f"WriteEngine clients is {clients!r}; allowed: 1 and more")
        for number in whole:
            if not 0 <= number < clients:
                raise ValueError(
                    f"WriteEngine whole has {number!r}; allowed: 0 to {clients - 1}, its clients"
                )
        self._config = config
        self._count = clients
        self._whole = frozenset(whole)
        super().__init__(
            {
                "clients": In(WriteClient()).array(clients),
                "m_axi": Out(AxiWriteSignature()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi = self.m_axi
        client_bits = max(1, (self._count - 1).bit_length())
        burst_layout = burst(client_bits)

        # One burst at a time, round robin
        offers = [self._bursts(m, number, client_bits) for number in range(self._count)]
        chosen = Signal(burst_layout)
        chosen_valid = Signal()
        chosen_free = Signal(init=1)  # not chosen_valid; of its own, for the wide register
        latest = Signal(client_bits)
        choice = Signal(client_bits)
        requests = [offer.valid for offer in offers]
        choose_round_robin(m, requests, latest, choice)
        grant = Cat(requests) & ~preceded_round_robin(m, requests, latest)
        issue = Signal()
        with m.If(issue):
            m.d.sync += [chosen_valid.eq(0), chosen_free.eq(1)]
        # Not in the cycle of `issue`: clients do not wait for what that depends on.
        with m.If(chosen_free):
            m.d.sync += [
                chosen.eq(Array([offer.payload for offer in offers])[choice]),
                chosen.tag.eq(choice),
                chosen_valid.eq(Cat(requests).any()),
                chosen_free.eq(~Cat(requests).any()),
            ]
            with m.If(Cat(requests).any()):
                m.d.sync += latest.eq(choice)
        for number, offer in enumerate(offers):
            m.d.comb += offer.ready.eq(chosen_free & grant[number])

        # A burst goes to AW and W in the same cycle, and a cycle later to the list of expected
        # responses.
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
        m.submodules.responses = responses = fifo.SyncFIFOBuffered(
            width=response_layout.size, depth=MAX_OUTSTANDING_BURSTS
        )
        words_in = Signal(words_layout)
        words_free = Signal()
        response_in = Signal(response_layout)
        # That is long before its response. One that was issued in the last two cycles may not count
        # in `room`.
        room = Signal(init=1)
        m.d.sync += [
            room.eq(responses.level < MAX_OUTSTANDING_BURSTS - 1),
            responses.w_en.eq(issue),
            response_in.client.eq(chosen.tag),
            response_in.last.eq(chosen.last),
        ]
        m.d.comb += [
            issue.eq(chosen_valid & addresses.i.ready & words_free & room),
            addresses.i.valid.eq(issue),
            addresses.i.payload.address.eq(chosen.address),
            addresses.i.payload.beats.eq(chosen.beats),
            words_in.beats.eq(chosen.beats),
            words_in.first.eq(chosen.first),
            words_in.last.eq(chosen.last),
            words_in.start_lane.eq(chosen.start_lane),
            words_in.end_lane.eq(chosen.end_lane),
            words_in.client.eq(chosen.tag),
            responses.w_data.eq(response_in),
            axi.awvalid.eq(addresses.o.valid),
            addresses.o.ready.eq(axi.awready),
            axi.awaddr.eq(addresses.o.payload.address),
            axi.awlen.eq(addresses.o.payload.beats),
            axi.awsize.eq(AXI_SIZE_WORD),
            axi.awburst.eq(AXI_BURST_INCR),
            axi.awid.eq(0),
        ]

        self._write_words(m, words_in, issue, words_free)
        self._collect_responses(m, responses, response_layout)
        return m

    def _bursts(self, m: Module, number: int, client_bits: int) -> Any:
        """Return the stream of a client's bursts."""
        command = self.clients[number].command
        if number not in self._whole:
            splitter = BurstSplitter(self._config.max_burst_beats, client_bits)
            m.submodules[f"splitter{number}"] = splitter
            m.d.comb += [
                splitter.i.valid.eq(command.valid),
                splitter.i.payload.address.eq(command.payload.address),
                splitter.i.payload.octets.eq(command.payload.octets),
                command.ready.eq(splitter.i.ready),
            ]
            return splitter.o
        block_bits = WORD_BITS + (self._config.max_burst_beats - 1).bit_length()
        offer = stream.Signature(burst(client_bits)).create(path=(f"whole{number}",))
        lane = command.payload.address[:WORD_BITS]
        end = Signal(block_bits + 1, name=f"end{number}")
        m.d.comb += [
            end.eq(lane + command.payload.octets[: block_bits + 1] - 1),
            offer.valid.eq(command.valid),
            command.ready.eq(offer.ready),
            offer.payload.address.eq(Cat(Const(0, WORD_BITS), command.payload.address[WORD_BITS:])),
            offer.payload.beats.eq(end[WORD_BITS:]),
            offer.payload.first.eq(1),
            offer.payload.last.eq(1),
            offer.payload.start_lane.eq(lane),
            offer.payload.end_lane.eq(end[:WORD_BITS]),
        ]
        return offer

    def _write_words(self, m: Module, coming: data.View, issue: Signal, free: Signal) -> None:
        """Move the words of the bursts from their clients to the W channel.

        `coming` is taken with `issue`, which must be low while not `free`.
        """
        layout = coming.shape()
        axi = self.m_axi
        w_layout = data.StructLayout({"data": 64, "strobe": WORD_OCTETS, "last": 1})
        m.submodules.w_buffer = w_buffer = StreamBuffer(w_layout)

        # Two bursts, in turn: one of which words move, and one that waits. Only few registers of
        # each wait for a word, and all others are loaded while it is vacant.
        turn = Signal()  # of which words move
        fill = Signal()  # which the next burst becomes
        vacant = Signal(W_BURSTS, init=(1 << W_BURSTS) - 1)
        bursts = [Signal(layout, name=f"burst{n}") for n in range(W_BURSTS)]
        last_beat = Signal(W_BURSTS)  # `beats`, which counts down, is 0
        first_beat = Signal(W_BURSTS)  # of the command
        # Its client, one bit per client; 0 while it is vacant
        selected = [Signal(self._count, name=f"selected{n}") for n in range(W_BURSTS)]
        candidates = Signal(data.ArrayLayout(coming.client.shape(), W_BURSTS))
        moved = Signal(W_BURSTS)
        valids = Cat(client.data.valid for client in self.clients)
        for number, each in enumerate(bursts):
            mine = turn == number
            m.d.comb += [
                moved[number].eq((valids & selected[number]).any() & w_buffer.i.ready & mine),
                candidates[number].eq(Mux(vacant[number], coming.client, each.client)),
            ]
            with m.If(vacant[number]):
                m.d.sync += [
                    each.eq(coming),
                    last_beat[number].eq(coming.beats == 0),
                    first_beat[number].eq(coming.first),
                ]
            with m.If(issue & (fill == number)):
                m.d.sync += [vacant[number].eq(0), selected[number].eq(1 << coming.client)]
            with m.If(moved[number]):
                m.d.sync += [
                    each.beats.eq(each.beats - 1),
                    last_beat[number].eq(each.beats == 1),
                    first_beat[number].eq(0),
                ]
                with m.If(last_beat[number]):
                    m.d.sync += [vacant[number].eq(1), selected[number].eq(0), turn.eq(~turn)]
        with m.If(issue):
            m.d.sync += fill.eq(~fill)
        m.d.comb += free.eq(vacant.bit_select(fill, 1))

        current = Signal(layout)
        is_selected = Signal(self._count)
        is_first, is_last = Signal(), Signal()
        m.d.comb += [
            current.eq(Mux(turn, *reversed(bursts))),
            is_selected.eq(Mux(turn, *reversed(selected))),
            is_first.eq(first_beat.bit_select(turn, 1)),
            is_last.eq(last_beat.bit_select(turn, 1)),
            w_buffer.i.valid.eq((valids & is_selected).any()),
            w_buffer.i.payload.last.eq(is_last),
        ]
        for number, client in enumerate(self.clients):
            m.d.comb += client.data.ready.eq(is_selected[number] & w_buffer.i.ready)

        # The client whose word goes, from a register for each half of the word.
        lower = Signal.like(coming.client)
        upper = Signal.like(lower, init=-1)  # inverted
        following = Mux(moved.any() & is_last, ~turn, turn)
        m.d.sync += [
            lower.eq(candidates[following]),
            upper.eq(~candidates[following]),
        ]
        words = [client.data.payload.data for client in self.clients]
        m.d.comb += w_buffer.i.payload.data.eq(
            Cat(
                Array([word[:32] for word in words])[lower],
                Array([word[32:] for word in words])[~upper],
            )
        )
        for lane in range(WORD_OCTETS):
            before = is_first & (lane < current.start_lane)
            behind = is_last & current.last & (lane > current.end_lane)
            m.d.comb += w_buffer.i.payload.strobe[lane].eq(~(before | behind))

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
        head = Signal(layout)
        answered = Signal()
        m.d.comb += [
            head.eq(responses.r_data),
            axi.bready.eq(responses.r_rdy),
            answered.eq(axi.bvalid & responses.r_rdy),
            responses.r_en.eq(answered),
        ]
        for number, client in enumerate(self.clients):
            failed = Signal(name=f"failed{number}")  # an earlier burst of the same command
            mine = answered & (head.client == number)
            m.d.sync += [
                client.done.eq(mine & head.last),
                client.error.eq(mine & head.last & (failed | (axi.bresp != 0))),
            ]
            with m.If(mine):
                m.d.sync += failed.eq((failed | (axi.bresp != 0)) & ~head.last)
