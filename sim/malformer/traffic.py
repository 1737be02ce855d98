"""Valid traffic of a peer: RDMA Messages that the device has to accept, cut into DDP Segments."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from stagecoach.sim.malformer.layout import Layout, Place
from stagecoach.sim.malformer.setting import Setting
from stagecoach.sim.model import ddp, errors, mpa, rdmap
from stagecoach.sim.model.atomics import ATOMIC_OCTETS, AtomicOperation, AtomicRequest
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.immediate import IMMEDIATE_OCTETS
from stagecoach.sim.model.memory import TAGGED_OFFSET_SPAN
from stagecoach.sim.model.message import Message
from stagecoach.sim.model.rdmap import Form, Opcode, ReadRequest, Terminate

_MESSAGES = (1, 2, 3, 4, 5)
_LARGE = 0.006
"""Share of Writes whose FPDUs are as long as they can be."""
_EMPTY_END = 0.1
"""Share of messages whose last segment has no bytes; that of the others has some."""


@dataclass(frozen=True)
class Segment:
    """A DDP Segment of the message with the name `kind`."""

    kind: str
    ulpdu: bytes


def _lengths(rng: random.Random, limit: int) -> int:
    """Bytes of a message, 0 to `limit`."""
    return min(limit, rng.choice([0, 1, 2, 4, rng.randrange(64), rng.randrange(400), limit]))


def _range(rng: random.Random, place: Place, limit: int) -> tuple[int, int]:
    """A Tagged Offset and bytes inside of a region, often at its edges."""
    octets = _lengths(rng, min(place.size - 1, limit))
    last = place.end - octets
    return rng.choice([place.base, last, rng.randint(place.base, last)]), octets


def _with_empty_end(ulpdu: bytes) -> tuple[bytes, bytes]:
    """The last segment of a message as the last but one, and an empty one after it."""
    header, payload = ddp.decode(ulpdu)
    end: TaggedHeader | UntaggedHeader
    if isinstance(header, TaggedHeader):
        end = replace(
            header, tagged_offset=(header.tagged_offset + len(payload)) % TAGGED_OFFSET_SPAN
        )
    else:
        end = replace(header, mo=header.mo + len(payload))
    return replace(header, last=False).encode() + payload, end.encode()


class Traffic:
    """Makes the messages of one stream; it knows what the device's end has left."""

    def __init__(self, setting: Setting, layout: Layout, rng: random.Random):
        self._setting = setting
        self._layout = layout
        self._rng = rng
        self._receives = list(map(sum, setting.receives))
        self._reads = list(setting.read_requests(layout))
        self._requests = setting.ird
        self._own = setting.own
        self._msn = {rdmap.QN_SEND: 1, rdmap.QN_READ_REQUEST: 1, rdmap.QN_TERMINATE: 1}

    def messages(self) -> list[Segment]:
        """Segments of a few messages, with at most a Terminate at the end."""
        segments: list[Segment] = []
        for _ in range(self._rng.choice(_MESSAGES)):
            kinds: list[Callable[[], Iterator[Segment]]] = [self._write, self._write]
            # A stream that does not take them seldom has any: it ends there.
            rfc7306 = self._setting.rfc7306 or self._rng.random() < 0.1
            if self._receives:
                kinds += [self._send, self._send, *[self._immediate] * rfc7306]
            if self._requests:
                kinds += [self._read_request, *[self._atomic_request] * rfc7306]
            if self._reads:
                kinds += [self._read_response] * 3
            segments += self._rng.choice(kinds)()
        if self._rng.random() < 0.15:
            segments += self._terminate()
        return segments

    def _cut(self, kind: str, message: Message, mulpdu: int = 0) -> Iterator[Segment]:
        mulpdu = mulpdu or self._rng.choice([40, 128, 500, 1454, 4000])
        done = message.done
        while not done:
            ulpdu = message.segment(mulpdu)
            done = message.done
            if done and self._rng.random() < _EMPTY_END:
                ulpdu, empty = _with_empty_end(ulpdu)
                yield Segment(kind, ulpdu)
                ulpdu = empty
            yield Segment(kind, ulpdu)

    def _untagged(self, opcode: Opcode, payload: bytes, word: int = 0) -> Message:
        qn = rdmap.QUEUE_OF[opcode]
        header = UntaggedHeader(qn, self._msn[qn], rsvd_ulp_word=word)
        self._msn[qn] += 1
        return Message(opcode, header, payload)

    def _large_write(self) -> Iterator[Segment]:
        place = self._layout["large"]
        octets = self._rng.choice([mpa.MULPDU_CEILING - 14, self._rng.randrange(20_000, 69_000)])
        header = TaggedHeader(place.stag, self._rng.randint(place.base, place.end - octets))
        message = Message(Opcode.RDMA_WRITE, header, self._rng.randbytes(octets))
        yield from self._cut("Write", message, mpa.MULPDU_CEILING)

    def _write(self) -> Iterator[Segment]:
        if self._rng.random() < _LARGE:
            yield from self._large_write()
            return
        names = ["main", "main", "write only", "high", *(["own"] if self._own else [])]
        place = self._layout[self._rng.choice(names)]
        start, octets = _range(self._rng, place, 3000)
        header = TaggedHeader(place.stag, start)
        if not octets:
            # Nobody checks STag and TO of an empty segment (RFC 5041, 5.2).
            header = TaggedHeader(self._rng.getrandbits(32), self._rng.getrandbits(64))
        payload = self._rng.randbytes(octets)
        yield from self._cut("Write", Message(Opcode.RDMA_WRITE, header, payload))

    def _send(self) -> Iterator[Segment]:
        rng = self._rng
        room = self._receives.pop(0)
        opcodes, word = [Opcode.SEND, Opcode.SEND_WITH_SE], 0
        if self._own:
            opcodes = [Opcode.SEND_WITH_INVALIDATE, Opcode.SEND_WITH_SE_AND_INVALIDATE]
            self._own, word = False, self._layout["own"].stag
        payload = rng.randbytes(_lengths(rng, room))
        yield from self._cut("Send", self._untagged(rng.choice(opcodes), payload, word))

    def _immediate(self) -> Iterator[Segment]:
        del self._receives[0]
        opcode = self._rng.choice([Opcode.IMMEDIATE_DATA, Opcode.IMMEDIATE_DATA_WITH_SE])
        message = self._untagged(opcode, self._rng.randbytes(IMMEDIATE_OCTETS))
        yield Segment(
            "Immediate Data", message.segment(ddp.UNTAGGED_HEADER_OCTETS + message.length)
        )

    def _read_request(self) -> Iterator[Segment]:
        rng = self._rng
        self._requests -= 1
        place = self._layout[rng.choice(["source", "source", "main", "high"])]
        start, octets = _range(rng, place, 3000)
        sink = rng.getrandbits(32), rng.choice([0, rng.getrandbits(64), TAGGED_OFFSET_SPAN - 4])
        request = ReadRequest(*sink, octets, place.stag, start)
        if not octets:
            request = ReadRequest(*sink, 0, rng.getrandbits(32), rng.getrandbits(64))
        message = self._untagged(Opcode.RDMA_READ_REQUEST, request.encode())
        yield Segment("Read Request", message.segment(ddp.UNTAGGED_HEADER_OCTETS + message.length))

    def _atomic_request(self) -> Iterator[Segment]:
        rng = self._rng
        self._requests -= 1
        place = self._layout[rng.choice(["main", "main", "high"])]
        # A region begins at an address that is a multiple of 8.
        target = place.base + rng.randrange(place.size // ATOMIC_OCTETS) * ATOMIC_OCTETS
        request = AtomicRequest(
            operation=rng.choice(list(AtomicOperation)),
            identifier=rng.getrandbits(32),
            stag=place.stag,
            tagged_offset=target,
            data=rng.getrandbits(64),
            mask=rng.getrandbits(64),
            compare=rng.getrandbits(64),
            # Few bits are compared, so that CmpSwap often matches.
            compare_mask=rng.choice([0, 1 << rng.randrange(64), rng.getrandbits(64)]),
        )
        message = self._untagged(Opcode.ATOMIC_REQUEST, request.encode())
        yield Segment(
            "Atomic Request", message.segment(ddp.UNTAGGED_HEADER_OCTETS + message.length)
        )

    def _read_response(self) -> Iterator[Segment]:
        request = self._reads.pop(0)
        header = TaggedHeader(request.sink_stag, request.sink_tagged_offset)
        payload = self._rng.randbytes(request.size)
        yield from self._cut("Read Response", Message(Opcode.RDMA_READ_RESPONSE, header, payload))

    def _terminate(self) -> Iterator[Segment]:
        rng = self._rng
        about = [errors.RDMAP_INVALID_STAG, errors.DDP_NO_BUFFER, errors.MPA_CRC]
        error = rng.choice([*about, ErrorCode(0, 0, rng.getrandbits(8)), *errors.NAMES])
        header, request, length = b"", b"", None
        if error.layer < 2 and rng.random() < 0.8:
            header = rng.choice(
                [
                    TaggedHeader(1, 2, rsvd_ulp=rdmap.control_octet(Opcode.RDMA_WRITE)).encode(),
                    UntaggedHeader(0, 1, rsvd_ulp=rdmap.control_octet(Opcode.SEND)).encode(),
                ]
            )
            length = len(header) + rng.randrange(1000)
            if error[:2] == (0, 1):
                control = rdmap.control_octet(Opcode.RDMA_READ_REQUEST)
                header = UntaggedHeader(rdmap.QN_READ_REQUEST, 1, rsvd_ulp=control).encode()
                length = len(header) + rdmap.READ_REQUEST_OCTETS
                request = ReadRequest(1, 2, 3, 4, 5).encode()
        form = rng.choice([Form.RFC, Form.RFC, Form.SIW])
        payload = Terminate(error, length, header, request, form).encode()
        message = self._untagged(Opcode.TERMINATE, payload)
        yield Segment("Terminate", message.segment(ddp.UNTAGGED_HEADER_OCTETS + message.length))
