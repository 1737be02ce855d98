"""Messages to bytes of the line: numbered, kept until they are acknowledged, and sent again."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.hostlink.octets import DEPTH, OCTET
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.mpa.crc32c import INITIAL_STATE, next_state
from stagecoach.hw.interface.hostlink import CRC_OCTETS, ESCAPE, ESCAPE_CHANGE, FLAG, WINDOW, Kind

ADDRESS_BITS = (DEPTH - 1).bit_length()

STARTS = 2 * WINDOW
"""Messages whose place is known: those in the window, and the next one."""

MARGIN = 8
"""Bytes of the memory that stay free: its level is seen some cycles late."""

HELLO_PAYLOAD_OCTETS = 12

FRAME_OCTET = data.StructLayout({"octet": 8, "flag": 1})
"""A byte of a frame, or the flag."""


class Stuffer(wiring.Component):
    """Octets of frames to octets of the line: replaces what must not be there (RFC 1662, 4.2).

    A byte every two cycles, or four for one that is replaced. All of `o` is registered.
    """

    i: In(stream.Signature(FRAME_OCTET))
    o: Out(stream.Signature(8))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        second = Signal(8)
        has_second = Signal()
        special = Signal()
        octet = self.i.p.octet
        m.d.comb += [
            self.i.ready.eq(~self.o.valid & ~has_second),
            special.eq(((octet == FLAG) | (octet == ESCAPE)) & ~self.i.p.flag),
        ]
        with m.If(self.o.valid):
            with m.If(self.o.ready):
                m.d.sync += self.o.valid.eq(0)
        with m.Elif(has_second):
            m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(second), has_second.eq(0)]
        with m.Elif(self.i.valid):
            m.d.sync += [
                self.o.valid.eq(1),
                self.o.payload.eq(
                    Mux(self.i.p.flag, FLAG, Mux(special, ESCAPE, octet)),
                ),
                second.eq(octet ^ ESCAPE_CHANGE),
                has_second.eq(special),
            ]
        return m


class FrameTransmitter(wiring.Component):
    """Sends messages, and the control frames that it is asked for.

    A byte of a message every four cycles. `i` waits while `WINDOW` messages, or as many as
    the memory of 2048 bytes holds, are not acknowledged.

    Parameters
    ----------
    retry_cycles: without an acknowledgement, until everything is sent again.

    Members
    -------
    i: messages: kind and payload. o: bytes of frames.
    expected: what frames acknowledge.
    acknowledged, acknowledged_number, again, acknowledge, reject: see `FrameReceiver`.
    hello: HELLO is to be sent, with the payload `hello_payload`.
    """

    def __init__(self, retry_cycles: int):
        self._retry_cycles = retry_cycles
        super().__init__(
            {
                "i": In(stream.Signature(OCTET)),
                "o": Out(stream.Signature(FRAME_OCTET)),
                "expected": In(8),
                "acknowledged": In(1),
                "acknowledged_number": In(8),
                "again": In(1),
                "acknowledge": In(1),
                "reject": In(1),
                "hello": In(1),
                "hello_payload": In(8 * HELLO_PAYLOAD_OCTETS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.store = store = memory.Memory(
            shape=9, depth=DEPTH, init=[], attrs=NO_COLLISION
        )
        self._write, self._read = store.write_port(), store.read_port()
        m.submodules.starts = starts = memory.Memory(shape=ADDRESS_BITS, depth=STARTS, init=[])
        self._start_write = starts.write_port()
        self._oldest_start = starts.read_port(domain="comb")
        self._next_start = starts.read_port(domain="comb")

        self._oldest = Signal(8)  # number of the oldest message that is not acknowledged
        self._next = Signal(8)  # to be sent
        self._end = Signal(8)  # to be written
        self._begun = Signal()  # starts[0] is set
        self._elaborate_memory(m)
        self._elaborate_frames(m)
        return m

    def _elaborate_memory(self, m: Module) -> None:
        write, start = self._write, self._start_write
        inside = Signal()  # of a message
        room = Signal()
        window = Signal()
        level = Signal(ADDRESS_BITS)
        oldest = Signal(ADDRESS_BITS)
        taken = Signal()
        following = Signal(ADDRESS_BITS)
        m.d.comb += [
            self._oldest_start.addr.eq(self._oldest),
            level.eq(write.addr - oldest),
            self.i.ready.eq(self._begun & room & (inside | window)),
            taken.eq(self.i.valid & self.i.ready),
            write.en.eq(taken),
            write.data.eq(Cat(self.i.p.octet, self.i.p.last)),
            following.eq(write.addr + 1),
        ]
        m.d.sync += [
            self._begun.eq(1),
            oldest.eq(self._oldest_start.data),
            room.eq(self._begun & (level < DEPTH - MARGIN)),
            # A message that ends in this cycle is the next one's business.
            window.eq(((self._end - self._oldest)[:8] < WINDOW) & ~taken),
        ]
        # The place of the next message is known with the end of the one before.
        m.d.comb += [
            start.en.eq(~self._begun | (taken & self.i.p.last)),
            start.addr.eq(Mux(self._begun, self._end + 1, 0)),
            start.data.eq(Mux(self._begun, following, 0)),
        ]
        with m.If(taken):
            m.d.sync += [write.addr.eq(following), inside.eq(~self.i.p.last)]
            with m.If(self.i.p.last):
                m.d.sync += self._end.eq(self._end + 1)

    def _elaborate_frames(self, m: Module) -> None:
        read = self._read
        again = Signal()
        acknowledge = Signal()
        reject = Signal()
        hello = Signal()
        idle_line = Signal(init=1)
        number = Signal(8)
        is_message = Signal()
        crc = Signal(32, init=INITIAL_STATE)
        timer = Signal(range(self._retry_cycles))
        address = Signal(ADDRESS_BITS)
        word = Signal(9)
        # What follows the kind: header, payload of a HELLO.
        fields = Signal(8 * (2 + HELLO_PAYLOAD_OCTETS))
        left = Signal(range(2 + HELLO_PAYLOAD_OCTETS + 1))

        progress = Signal()
        distance = Signal(8)
        m.d.comb += [
            distance.eq(self.acknowledged_number - self._oldest),
            progress.eq(
                self.acknowledged & (distance != 0) & (distance <= (self._end - self._oldest)[:8])
            ),
            self._next_start.addr.eq(self._next),
            read.addr.eq(address),
            read.en.eq(1),
        ]
        with m.If(progress):
            m.d.sync += self._oldest.eq(self.acknowledged_number)

        octet, flag = self.o.p.octet, self.o.p.flag
        passed = Signal()
        m.d.comb += passed.eq(self.o.valid & self.o.ready)
        with m.If(passed):
            m.d.sync += self.o.valid.eq(0)
            with m.If(~flag):
                m.d.sync += crc.eq(next_state(crc, octet))

        def offer(value: object, is_flag: int = 0) -> list:
            return [self.o.valid.eq(1), octet.eq(value), flag.eq(is_flag)]

        waiting = Signal()  # for an acknowledgement: every message was sent
        overtaken = Signal()
        m.d.comb += [
            waiting.eq((self._oldest != self._end) & (self._next == self._end)),
            overtaken.eq((self._next - self._oldest)[7]),
        ]
        with m.FSM():
            with m.State("IDLE"):  # waits for something to send
                m.d.sync += crc.eq(INITIAL_STATE)
                with m.If(again | overtaken):
                    m.d.sync += [self._next.eq(self._oldest), again.eq(0)]
                with m.Elif(hello):
                    m.d.sync += [
                        hello.eq(0),
                        number.eq(Kind.HELLO),
                        fields.eq(Cat(Const(0, 16), self.hello_payload)),
                        left.eq(2 + HELLO_PAYLOAD_OCTETS),
                        is_message.eq(0),
                    ]
                    m.next = "OPENING"
                with m.Elif(reject):
                    m.d.sync += [
                        reject.eq(0),
                        acknowledge.eq(0),
                        number.eq(Kind.REJECT),
                        fields.eq(Cat(Const(0, 8), self.expected)),
                        left.eq(2),
                        is_message.eq(0),
                    ]
                    m.next = "OPENING"
                with m.Elif(self._next != self._end):
                    m.d.sync += [
                        acknowledge.eq(0),
                        address.eq(self._next_start.data),
                        fields.eq(Cat(self._next, self.expected)),
                        left.eq(2),
                        is_message.eq(1),
                    ]
                    m.next = "OPENING"
                with m.Elif(acknowledge):
                    m.d.sync += [
                        acknowledge.eq(0),
                        number.eq(Kind.ACKNOWLEDGE),
                        fields.eq(Cat(Const(0, 8), self.expected)),
                        left.eq(2),
                        is_message.eq(0),
                    ]
                    m.next = "OPENING"
                with m.Else():
                    m.d.sync += idle_line.eq(1)
            with m.State("OPENING"):  # sends a flag after an idle line
                with m.If(~idle_line):
                    m.next = "FETCH_KIND"
                with m.Elif(~self.o.valid):
                    m.d.sync += offer(FLAG, 1)
                    m.d.sync += idle_line.eq(0)
                    m.next = "FETCH_KIND"
            with m.State("FETCH_KIND"):  # waits for the memory
                m.next = "LATCH_KIND"
            with m.State("LATCH_KIND"):  # has the kind
                m.d.sync += word.eq(read.data)
                m.next = "KIND"
            with m.State("KIND"):  # sends the kind
                with m.If(~self.o.valid):
                    m.d.sync += offer(Mux(is_message, word[:8], number))
                    m.d.sync += address.eq(address + 1)
                    m.next = "FIELDS"
            with m.State("FIELDS"):  # sends number, acknowledgement, payload of a HELLO
                with m.If(~self.o.valid):
                    m.d.sync += offer(fields[:8])
                    m.d.sync += [fields.eq(fields >> 8), left.eq(left - 1)]
                    with m.If(left == 1):
                        m.next = "AFTER"
            with m.State("AFTER"):  # decides whether there is more
                with m.If(is_message & ~word[8]):
                    m.next = "LATCH"
                with m.Elif(~self.o.valid):
                    m.d.sync += left.eq(CRC_OCTETS)
                    m.next = "CHECKED"
            with m.State("LATCH"):  # has the next byte of the message
                m.d.sync += word.eq(read.data)
                m.next = "OCTET"
            with m.State("OCTET"):  # sends it
                with m.If(~self.o.valid):
                    m.d.sync += offer(word[:8])
                    m.d.sync += address.eq(address + 1)
                    m.next = "AFTER"
            with m.State("CHECKED"):  # the CRC is complete
                m.d.sync += fields.eq(~crc)
                m.next = "CRC"
            with m.State("CRC"):  # sends it
                with m.If(~self.o.valid):
                    m.d.sync += offer(fields[:8])
                    m.d.sync += [fields.eq(fields >> 8), left.eq(left - 1)]
                    with m.If(left == 1):
                        m.next = "CLOSING"
            with m.State("CLOSING"):  # sends the flag
                with m.If(~self.o.valid):
                    m.d.sync += offer(FLAG, 1)
                    with m.If(is_message):
                        m.d.sync += self._next.eq(self._next + 1)
                    m.next = "IDLE"

        with m.If(~waiting | progress):
            m.d.sync += timer.eq(0)
        with m.Else():
            m.d.sync += timer.eq(timer + 1)
            with m.If(timer == self._retry_cycles - 1):
                m.d.sync += again.eq(1)
        # After the states: what is asked for in the cycle of its turn is not lost.
        for wish, asked in (
            (again, self.again),
            (acknowledge, self.acknowledge),
            (reject, self.reject),
            (hello, self.hello),
        ):
            with m.If(asked):
                m.d.sync += wish.eq(1)
