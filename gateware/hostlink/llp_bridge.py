"""The LLP port over messages: the host lends the kernel's TCP."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS, RnicConfig
from stagecoach.gateware.hostlink.octets import DEPTH, OCTET, MessageSlot, OctetBuffer
from stagecoach.gateware.mpa.ports import LlpSignature
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.hw.interface.hostlink import EVENTS, MAXIMUM_BEATS, SEND_CLOSE, SEND_LAST, Kind

EVENT = data.StructLayout({"connection": 16, "kind": 8, "value": 32})
"""Payload of LLP_EVENT."""

PART_OCTETS = WORD_OCTETS * MAXIMUM_BEATS
"""Received bytes that one LLP_REQUEST asks for at most."""


class LlpSender(wiring.Component):
    """FPDUs that the device sends, to LLP_SEND messages of up to 32 beats; a beat every 10 cycles.

    A message leaves when it is complete, so an FPDU whose next beats are late holds up nothing.

    Members
    -------
    tx_valid to tx_close: as in `LlpSignature`.
    o: LLP_SEND messages.
    mark: pulses. passed: the messages begun before the last `mark` have left; from the cycle
        after it on.
    """

    def __init__(self, config: RnicConfig):
        super().__init__(
            {
                "tx_valid": In(1),
                "tx_ready": Out(1),
                "tx_connection": In(config.qp_bits),
                "tx_data": In(64),
                "tx_octets": In(4),
                "tx_last": In(1),
                "tx_close": In(1),
                "o": Out(stream.Signature(OCTET)),
                "mark": In(1),
                "passed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.buffer = buffer = OctetBuffer()
        wiring.connect(m, buffer.o, wiring.flipped(self.o))
        begun = Signal(8)
        left = Signal(8)
        awaited = Signal(8)
        m.d.sync += self.passed.eq(left == awaited)
        with m.If(self.mark):
            m.d.sync += [awaited.eq(begun), self.passed.eq(0)]
        with m.If(self.o.valid & self.o.ready & self.o.p.last):
            m.d.sync += left.eq(left + 1)

        shift = Signal(64)
        octets = Signal(4)
        beats = Signal(range(MAXIMUM_BEATS + 1))
        last = Signal()
        close = Signal()
        high = Signal()
        item = buffer.i
        m.d.comb += buffer.commit.eq(item.valid & item.ready & item.p.last)
        with m.FSM():
            with m.State("PART"):  # waits for a beat, and sends the kind
                m.d.comb += [item.p.octet.eq(Kind.LLP_SEND), item.valid.eq(self.tx_valid)]
                m.d.sync += [beats.eq(0), high.eq(0)]
                with m.If(item.valid & item.ready):
                    m.d.sync += begun.eq(begun + 1)
                    m.next = "CONNECTION"
            with m.State("CONNECTION"):  # sends the connection
                m.d.comb += [
                    item.valid.eq(1),
                    item.p.octet.eq(Mux(high, 0, self.tx_connection)),
                ]
                with m.If(item.ready):
                    m.d.sync += high.eq(1)
                    with m.If(high):
                        m.next = "BEAT"
            with m.State("BEAT"):  # waits for a beat
                m.d.comb += self.tx_ready.eq(1)
                m.d.sync += [
                    shift.eq(self.tx_data),
                    octets.eq(self.tx_octets),
                    last.eq(self.tx_last),
                    close.eq(self.tx_close),
                ]
                with m.If(self.tx_valid):
                    m.d.sync += beats.eq(beats + 1)
                    m.next = "OCTETS"
            with m.State("OCTETS"):  # sends its bytes
                m.d.comb += [item.valid.eq(octets != 0), item.p.octet.eq(shift[:8])]
                with m.If(item.ready):
                    m.d.sync += [shift.eq(shift >> 8), octets.eq(octets - 1)]
                with m.If(octets == 0):
                    m.d.sync += octets.eq(0)
                    m.next = "BEAT"
                    with m.If(last | (beats == MAXIMUM_BEATS)):
                        m.next = "FLAGS"
            with m.State("FLAGS"):  # sends the flags
                m.d.comb += [
                    item.valid.eq(1),
                    item.p.octet.eq(Mux(last, SEND_LAST, 0) | Mux(close, SEND_CLOSE, 0)),
                    item.p.last.eq(1),
                ]
                with m.If(item.ready):
                    m.next = "PART"
        return m


class LlpReader(wiring.Component):
    """Received bytes: requests of the device, in parts for which there is room, and their answers.

    2 KiB may be asked for and not taken yet. A beat every 16 cycles.

    Members
    -------
    rx_request_valid to rx_data: as in `LlpSignature`.
    o: LLP_REQUEST messages.
    i: the words of LLP_DATA; it never waits for long.
    busy: a request, or a part of it, has not left.
    """

    def __init__(self, config: RnicConfig):
        super().__init__(
            {
                "rx_request_valid": In(1),
                "rx_request_ready": Out(1),
                "rx_request_connection": In(config.qp_bits),
                "rx_request_position": In(32),
                "rx_request_octets": In(17),
                "rx_valid": Out(1),
                "rx_ready": In(1),
                "rx_data": Out(64),
                "o": Out(stream.Signature(OCTET)),
                "i": In(stream.Signature(OCTET)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.slot = slot = MessageSlot(Kind.LLP_REQUEST, 8)
        m.submodules.buffer = buffer = OctetBuffer(DEPTH)
        wiring.connect(m, slot.o, wiring.flipped(self.o))
        wiring.connect(m, wiring.flipped(self.i), buffer.i)
        m.d.comb += buffer.commit.eq(1)

        words = DEPTH // WORD_OCTETS
        reserved = Signal(range(words))  # words asked for and not taken
        room = Signal()
        asked = Signal()
        taken = Signal()
        connection = Signal(16)
        position = Signal(32)
        left = Signal(17)
        part = Signal(range(PART_OCTETS + 1))
        part_words = Signal(range(MAXIMUM_BEATS + 1))
        m.d.comb += [
            part.eq(Mux(left > PART_OCTETS, PART_OCTETS, left)),
            part_words.eq((part + (WORD_OCTETS - 1)) >> 3),
            slot.i.payload.eq(Cat(connection, position, part | Const(0, 16))),
            taken.eq(self.rx_valid & self.rx_ready),
        ]
        m.d.sync += [
            room.eq((reserved < words - 1 - MAXIMUM_BEATS) & ~asked),
            reserved.eq(reserved + Mux(asked, part_words, 0) - taken),
        ]
        asking = Signal()
        m.d.comb += self.busy.eq(asking | slot.o.valid)
        with m.FSM():
            with m.State("IDLE"):  # waits for a request
                m.d.comb += self.rx_request_ready.eq(1)
                m.d.sync += [
                    connection.eq(self.rx_request_connection),
                    position.eq(self.rx_request_position),
                    left.eq(self.rx_request_octets),
                ]
                with m.If(self.rx_request_valid):
                    m.next = "ASK"
            with m.State("ASK"):  # waits for room, asks for a part
                m.d.comb += [asking.eq(1), slot.i.valid.eq(room), asked.eq(room & slot.i.ready)]
                with m.If(asked):
                    m.d.sync += [position.eq(position + part), left.eq(left - part)]
                    with m.If(left <= PART_OCTETS):
                        m.next = "IDLE"

        lane = Signal(3)
        octet = buffer.o
        m.d.comb += octet.ready.eq(~self.rx_valid)
        with m.If(taken):
            m.d.sync += self.rx_valid.eq(0)
        with m.If(octet.valid & octet.ready):
            m.d.sync += [
                self.rx_data.eq(Cat(self.rx_data[8:], octet.p.octet)),
                lane.eq(lane + 1),
                self.rx_valid.eq(lane == WORD_OCTETS - 1),
            ]
        return m


class LlpBridge(wiring.Component):
    """The whole LLP port of the device.

    Members
    -------
    llp: the port.
    sends, requests, releases, taken: LLP_SEND, LLP_REQUEST, LLP_RELEASE, LLP_EVENTS_TAKEN messages.
    data: words of LLP_DATA. event: an LLP_EVENT; there is room for `EVENTS`.
    mark, passed: see `RegisterBridge`.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        super().__init__(
            {
                "llp": In(LlpSignature(config)),
                "sends": Out(stream.Signature(OCTET)),
                "requests": Out(stream.Signature(OCTET)),
                "releases": Out(stream.Signature(OCTET)),
                "taken": Out(stream.Signature(OCTET)),
                "data": In(stream.Signature(OCTET)),
                "event": In(stream.Signature(EVENT)),
                "mark": In(1),
                "passed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        llp = self.llp
        m.submodules.sender = sender = LlpSender(self._config)
        m.submodules.reader = reader = LlpReader(self._config)
        m.submodules.release = release = MessageSlot(Kind.LLP_RELEASE, 6)
        m.submodules.taken = told = MessageSlot(Kind.LLP_EVENTS_TAKEN, 1)
        m.submodules.events = events = StreamFifo(EVENT, EVENTS)
        for inner, outer in (
            (sender.o, self.sends),
            (reader.o, self.requests),
            (release.o, self.releases),
            (told.o, self.taken),
        ):
            wiring.connect(m, inner, wiring.flipped(outer))
        wiring.connect(m, wiring.flipped(self.data), reader.i)
        wiring.connect(m, wiring.flipped(self.event), events.i)
        for name in ("valid", "connection", "data", "octets", "last", "close"):
            m.d.comb += getattr(sender, f"tx_{name}").eq(getattr(llp, f"tx_{name}"))
        for name in ("valid", "connection", "position", "octets"):
            m.d.comb += getattr(reader, f"rx_request_{name}").eq(getattr(llp, f"rx_request_{name}"))
        m.d.comb += [
            llp.tx_ready.eq(sender.tx_ready),
            llp.rx_request_ready.eq(reader.rx_request_ready),
            llp.rx_valid.eq(reader.rx_valid),
            llp.rx_data.eq(reader.rx_data),
            reader.rx_ready.eq(llp.rx_ready),
            release.i.valid.eq(llp.rx_release_valid),
            release.i.payload.eq(
                Cat(llp.rx_release_connection | Const(0, 16), llp.rx_release_position)
            ),
            llp.rx_release_ready.eq(release.i.ready),
            llp.event_valid.eq(events.o.valid),
            llp.event_connection.eq(events.o.p.connection),
            llp.event_kind.eq(events.o.p.kind),
            llp.event_value.eq(events.o.p.value),
            events.o.ready.eq(llp.event_ready),
        ]

        count = Signal(8)
        said = Signal(8)
        telling = Signal()
        m.d.comb += [told.i.valid.eq(telling), told.i.payload.eq(said)]
        with m.If(events.o.valid & events.o.ready):
            m.d.sync += count.eq(count + 1)
        with m.If(telling):
            m.d.sync += telling.eq(~told.i.ready)
        with m.Elif(said != count):
            m.d.sync += [said.eq(count), telling.eq(1)]

        # Each was seen to be empty since the mark.
        quiet = Signal(2)
        m.d.comb += [
            sender.mark.eq(self.mark),
            self.passed.eq(sender.passed & quiet.all()),
        ]
        with m.If(self.mark):
            m.d.sync += quiet.eq(0)
        with m.Else():
            m.d.sync += quiet.eq(quiet | Cat(~reader.busy, ~release.o.valid))
        return m
