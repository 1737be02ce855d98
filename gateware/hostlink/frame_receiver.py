"""Bytes of the line to messages: finds frames, checks them, takes them in order."""

from amaranth.hdl import Cat, Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.hostlink.octets import OCTET, OctetBuffer
from stagecoach.gateware.mpa.crc32c import INITIAL_STATE, RESIDUE, next_state
from stagecoach.hw.interface.hostlink import (
    CRC_OCTETS,
    ESCAPE,
    ESCAPE_CHANGE,
    FIRST_MESSAGE,
    FLAG,
    HEADER_OCTETS,
    MAXIMUM_PAYLOAD,
    Kind,
)

LEAST_OCTETS = HEADER_OCTETS + CRC_OCTETS
MOST_OCTETS = LEAST_OCTETS + MAXIMUM_PAYLOAD

LINE_DELAY = CRC_OCTETS + 1
"""Bytes held back: the CRC, and the byte before it, which is the last of the message."""

NONCE_OCTETS = 4


class FrameReceiver(wiring.Component):
    """Takes frames from the line; their messages leave when the CRC was good.

    A byte of the line a cycle; it waits only when the buffer is full. What a frame says is on
    the outputs two cycles after its closing flag. A message is taken if a session is open and
    its number is `expected`.

    Members
    -------
    i: bytes of the line.
    o: messages: kind and payload.
    session: a session is open. restart: one begins: the next number expected is 0, and no
        message of the one before is left.
    expected: number of the next message.
    acknowledged: the peer expects `acknowledged_number` next.
    again: the peer wants everything sent again from there on.
    acknowledge: the peer is to be told `expected`. reject: with the wish that it sends again.
    open: an OPEN came, with `nonce`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "o": Out(stream.Signature(OCTET)),
                "session": In(1),
                "restart": In(1),
                "expected": Out(8),
                "acknowledged": Out(1),
                "acknowledged_number": Out(8),
                "again": Out(1),
                "acknowledge": Out(1),
                "reject": Out(1),
                "open": Out(1),
                "nonce": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        buffer = OctetBuffer()
        m.submodules.buffer = ResetInserter(self.restart)(buffer)
        wiring.connect(m, buffer.o, wiring.flipped(self.o))

        octet = Signal(8)
        taken = Signal()  # a byte of a frame
        flag = Signal()
        escaped = Signal()
        count = Signal(range(MOST_OCTETS + 2))
        crc = Signal(32, init=INITIAL_STATE)
        kind = Signal(8)
        number = Signal(8)
        acknowledged = Signal(8)
        nonce = Signal(8 * NONCE_OCTETS)
        line = Signal(8 * LINE_DELAY)  # the oldest byte in the lowest bits
        is_escape = Signal()
        m.d.comb += [
            self.i.ready.eq(buffer.i.ready),
            flag.eq(self.i.valid & self.i.ready & (self.i.payload == FLAG)),
            is_escape.eq(self.i.payload == ESCAPE),
            taken.eq(self.i.valid & self.i.ready & (self.i.payload != FLAG) & ~is_escape),
            octet.eq(self.i.payload ^ (escaped << (ESCAPE_CHANGE.bit_length() - 1))),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += escaped.eq(is_escape)
        with m.If(taken):
            m.d.sync += crc.eq(next_state(crc, octet))
            with m.If(count <= MOST_OCTETS):
                m.d.sync += count.eq(count + 1)
            with m.Switch(count):
                with m.Case(0):
                    m.d.sync += kind.eq(octet)
                with m.Case(1):
                    m.d.sync += number.eq(octet)
                with m.Case(2):
                    m.d.sync += acknowledged.eq(octet)
            with m.If((count == 0) | (count >= HEADER_OCTETS)):
                m.d.sync += line.eq(Cat(line[8:], octet))
            for index in range(NONCE_OCTETS):
                with m.If(count == HEADER_OCTETS + index):
                    m.d.sync += nonce[8 * index : 8 * index + 8].eq(octet)
        with m.Elif(flag):
            m.d.sync += [crc.eq(INITIAL_STATE), count.eq(0)]

        # The line holds kind, payload and CRC of `count` bytes, but for the two of the header.
        overflow = Signal()
        held = Signal()
        m.d.comb += [
            held.eq(count >= LEAST_OCTETS),
            buffer.i.valid.eq((taken | flag) & held & (count <= MOST_OCTETS)),
            buffer.i.p.octet.eq(line[:8]),
            buffer.i.p.last.eq(flag),
            overflow.eq(count > MOST_OCTETS),
        ]

        ended = Signal()
        whole = Signal()
        is_message = Signal()
        is_next = Signal()
        is_ahead = Signal()
        ended_kind = Signal(8)
        distance = Signal(8)
        m.d.comb += distance.eq(number - self.expected)
        m.d.sync += [
            ended.eq(flag & ((count != 0) | escaped)),
            whole.eq((crc == RESIDUE) & held & ~overflow & ~escaped),
            is_message.eq(kind >= FIRST_MESSAGE),
            is_next.eq(distance == 0),
            is_ahead.eq(~distance[7]),
            ended_kind.eq(kind),
            self.acknowledged_number.eq(acknowledged),
            self.nonce.eq(nonce),
        ]
        rejected = Signal()
        accept = Signal()
        good = Signal()
        unwanted = Signal()
        m.d.comb += [
            good.eq(ended & whole & self.session),
            accept.eq(good & is_message & is_next),
            unwanted.eq(ended & self.session & (~whole | (is_message & is_ahead & ~is_next))),
            buffer.commit.eq(accept),
            buffer.drop.eq(ended & ~accept),
        ]
        m.d.sync += [
            self.acknowledged.eq(good),
            self.again.eq(good & (ended_kind == Kind.REJECT)),
            self.acknowledge.eq(good & is_message),
            self.reject.eq(unwanted & ~rejected),
            self.open.eq(ended & whole & (ended_kind == Kind.OPEN)),
        ]
        with m.If(accept):
            m.d.sync += [self.expected.eq(self.expected + 1), rejected.eq(0)]
        with m.Elif(unwanted):
            m.d.sync += rejected.eq(1)
        with m.If(self.restart):
            m.d.sync += [self.expected.eq(0), rejected.eq(0)]
        return m
