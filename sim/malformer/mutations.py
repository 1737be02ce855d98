"""What is done to a valid stream: each mutation changes some FPDUs and notes its name in them."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from stagecoach.sim.malformer import fields
from stagecoach.sim.malformer.fields import another_value, fields_of
from stagecoach.sim.malformer.fpdu import Edit, Flip, Fpdu, MarkerEdit
from stagecoach.sim.malformer.layout import Layout
from stagecoach.sim.malformer.setting import Setting
from stagecoach.sim.model import ddp, mpa, rdmap
from stagecoach.sim.model.atomics import ATOMIC_OCTETS, ATOMIC_REQUEST_OCTETS
from stagecoach.sim.model.markers import MARKER_OCTETS
from stagecoach.sim.model.memory import TAGGED_OFFSET_SPAN
from stagecoach.sim.model.rdmap import Opcode


@dataclass
class Stream:
    """The FPDUs of a stream on their way to being wrong."""

    fpdus: list[Fpdu]
    setting: Setting
    layout: Layout
    rng: random.Random

    def pick(self, suits: Callable[[Fpdu], bool] = lambda _: True) -> int | None:
        """The number of an FPDU that suits, if there is one; rare messages as often as others."""
        kinds = sorted({fpdu.kind for fpdu in self.fpdus if suits(fpdu)})
        if not kinds:
            return None
        kind = self.rng.choice(kinds)
        numbers = range(len(self.fpdus))
        return self.rng.choice(
            [n for n in numbers if self.fpdus[n].kind == kind and suits(self.fpdus[n])]
        )

    def change(self, number: int, name: str, **changes: object) -> None:
        """Replaces attributes of an FPDU."""
        fpdu = self.fpdus[number]
        self.fpdus[number] = replace(fpdu, mutations=(*fpdu.mutations, name), **changes)  # type: ignore[arg-type]

    def edit(self, number: int, name: str, edit: Edit | Flip | MarkerEdit, fixed: bool) -> None:
        """Adds an edit of framed bytes."""
        fpdu = self.fpdus[number]
        name += ", CRC fixed" if fixed else ""
        self.change(number, name, edits=(*fpdu.edits, edit), fixed=fixed)


Mutation = Callable[[Stream], None]


def _untagged(fpdu: Fpdu) -> bool:
    return len(fpdu.ulpdu) >= ddp.UNTAGGED_HEADER_OCTETS and not fpdu.ulpdu[0] & ddp.FLAG_TAGGED


def _tagged(fpdu: Fpdu) -> bool:
    return len(fpdu.ulpdu) >= ddp.TAGGED_HEADER_OCTETS and not _untagged(fpdu)


def _opcode(fpdu: Fpdu) -> int:
    return rdmap.decode_control(fpdu.ulpdu[1]).opcode if len(fpdu.ulpdu) > 1 else -1


def _is_request(fpdu: Fpdu) -> bool:
    """Whether it is a whole Read or Atomic Request."""
    header = len(fpdu.ulpdu) - ddp.UNTAGGED_HEADER_OCTETS
    if _opcode(fpdu) == Opcode.ATOMIC_REQUEST:
        return header >= ATOMIC_REQUEST_OCTETS
    return _opcode(fpdu) == Opcode.RDMA_READ_REQUEST and header >= rdmap.READ_REQUEST_OCTETS


# Bits, fields and headers


def flip_bit(stream: Stream) -> None:
    """One bit of the FPDU, its CRC left or made good."""
    number = stream.pick()
    if number is not None:
        stream.edit(number, "bit", Flip(stream.rng.getrandbits(24)), stream.rng.random() < 0.7)


def flip_header_bit(stream: Stream) -> None:
    """One bit of the first bytes, its CRC made good."""
    number = stream.pick()
    if number is not None:
        stream.edit(number, "bit of the header", Flip(stream.rng.randrange(8 * 52)), True)


def change_field(stream: Stream) -> None:
    """One field of a header to an edge or to any value."""
    number = stream.pick(lambda fpdu: bool(fpdu.ulpdu))
    if number is None:
        return
    ulpdu = stream.fpdus[number].ulpdu
    field = stream.rng.choice(fields_of(ulpdu))
    value = another_value(field, ulpdu, stream.layout, stream.rng)
    stream.change(number, field.name, ulpdu=field.write(ulpdu, value))


def retarget(stream: Stream) -> None:
    """Another region, in its range or about: who may do what there is what is left to check."""
    number = stream.pick(lambda f: _tagged(f) or _is_request(f))
    if number is None:
        return
    rng, ulpdu = stream.rng, stream.fpdus[number].ulpdu
    stag, offset = fields.TAGGED
    length = len(ulpdu) - ddp.TAGGED_HEADER_OCTETS
    name = "Write or Read Response retargeted"
    if _untagged(stream.fpdus[number]):
        stag, offset = fields.SOURCE_STAG, fields.SOURCE_OFFSET
        length = fields.READ_SIZE.read(ulpdu)
        name = "Read Request retargeted"
        if _opcode(stream.fpdus[number]) == Opcode.ATOMIC_REQUEST:
            stag, offset = fields.TARGET_STAG, fields.TARGET_OFFSET
            length = ATOMIC_OCTETS
            name = "Atomic Request retargeted"
    place = stream.layout[rng.choice(list(stream.layout.places))]
    start = place.base + rng.choice([0, -1, place.size - length, place.size - length + 1])
    start = rng.choice([start, start, place.base + place.size // 2, TAGGED_OFFSET_SPAN - 3])
    ulpdu = stag.write(ulpdu, place.stag)
    stream.change(number, name, ulpdu=offset.write(ulpdu, start % TAGGED_OFFSET_SPAN))


def invalidate(stream: Stream) -> None:
    """A Send becomes one with Invalidate, of any STag."""
    number = stream.pick(lambda f: _untagged(f) and _opcode(f) in rdmap.SEND_OPCODES)
    if number is None:
        return
    rng, ulpdu = stream.rng, stream.fpdus[number].ulpdu
    places = [*stream.layout.places.values()]
    stag = rng.choice([rng.choice(places).stag, rng.choice(places).stag, rng.getrandbits(32)])
    ulpdu = fields.OPCODE.write(ulpdu, rng.choice(sorted(rdmap.INVALIDATE_OPCODES)))
    stream.change(number, "invalidation", ulpdu=fields.INVALIDATE_STAG.write(ulpdu, stag))


def other_message(stream: Stream) -> None:
    """Another opcode with the rest as it was, sometimes with the queue that fits."""
    number = stream.pick(lambda f: len(f.ulpdu) >= ddp.TAGGED_HEADER_OCTETS)
    if number is None:
        return
    rng, ulpdu = stream.rng, stream.fpdus[number].ulpdu
    opcode = rng.randrange(16)
    ulpdu = fields.OPCODE.write(ulpdu, opcode)
    if opcode in list(Opcode) and _untagged(stream.fpdus[number]) and rng.random() < 0.7:
        qn = rdmap.QUEUE_OF.get(Opcode(opcode), rng.randrange(4))
        ulpdu = fields.QN.write(ulpdu, qn)
    stream.change(number, "another message", ulpdu=ulpdu)


def other_header(stream: Stream) -> None:
    """The header of one segment in front of the payload of another."""
    one, other = stream.pick(), stream.pick()
    if one is None or other is None:
        return
    head, tail = stream.fpdus[one].ulpdu, stream.fpdus[other].ulpdu
    if head and tail:
        ends = [ddp.header_octets(ulpdu[0]) for ulpdu in (head, tail)]
        stream.change(other, "header of another segment", ulpdu=head[: ends[0]] + tail[ends[1] :])


# Lengths


def cut_ulpdu(stream: Stream) -> None:
    """A shorter ULPDU, well framed."""
    number = stream.pick(lambda fpdu: len(fpdu.ulpdu) > 1)
    if number is None:
        return
    ulpdu, rng = stream.fpdus[number].ulpdu, stream.rng
    length = rng.choice([len(ulpdu) - 1, rng.randrange(1, len(ulpdu)), rng.randrange(1, 20)])
    stream.change(number, "ULPDU cut", ulpdu=ulpdu[: min(length, len(ulpdu) - 1)])


def extend_ulpdu(stream: Stream) -> None:
    """A longer ULPDU, well framed."""
    number = stream.pick()
    if number is None:
        return
    ulpdu, rng = stream.fpdus[number].ulpdu, stream.rng
    longest = mpa.ULPDU_LENGTH_MAX - len(ulpdu)
    more = rng.choice([1, 1, 2, rng.randrange(1, 60), rng.randrange(1, 2000)])
    if rng.random() < 0.03:
        more = rng.choice([mpa.MULPDU_CEILING - len(ulpdu), rng.randrange(40_000)])
    more = min(max(more, 1), longest)
    stream.change(number, "ULPDU extended", ulpdu=ulpdu + rng.randbytes(more))


def claim_length(stream: Stream) -> None:
    """Another ULPDU_Length, the bytes as they were."""
    number = stream.pick()
    if number is None:
        return
    rng, length = stream.rng, len(stream.fpdus[number].ulpdu)
    edges = [0, 1, length - 1, length + 1, length + 4, length + 8, length + 60]
    edges += [mpa.MULPDU_CEILING, mpa.MULPDU_CEILING + 1, 0xFFFF, rng.randrange(600)]
    claimed = rng.choice([edge for edge in edges if 0 <= edge != length])
    fixed = rng.random() < 0.5
    name = "ULPDU_Length" + (", CRC fixed" if fixed else "")
    stream.change(number, name, claimed=claimed, fixed=fixed)


def remove_octets(stream: Stream) -> None:
    """Bytes missing from the FPDU."""
    number = stream.pick()
    if number is not None:
        rng = stream.rng
        edit = Edit(rng.getrandbits(16), rng.choice([1, 2, 4, 8, rng.randrange(1, 64)]), b"")
        stream.edit(number, "octets removed", edit, rng.random() < 0.3)


def insert_octets(stream: Stream) -> None:
    """Bytes too many in the FPDU."""
    number = stream.pick()
    if number is not None:
        rng = stream.rng
        more = rng.randbytes(rng.choice([1, 2, 4, 8, rng.randrange(1, 64)]))
        stream.edit(number, "octets inserted", Edit(rng.getrandbits(16), 0, more), False)


def end_stream(stream: Stream) -> None:
    """The stream ends inside of an FPDU."""
    number = stream.pick()
    if number is not None:
        del stream.fpdus[number + 1 :]
        edit = Edit(stream.rng.getrandbits(16), 1 << 17, b"")
        stream.edit(number, "end of the stream", edit, False)


# Order


def swap(stream: Stream) -> None:
    """Two FPDUs in the wrong order."""
    if len(stream.fpdus) < 2:
        return
    first = stream.rng.randrange(len(stream.fpdus) - 1)
    second = stream.rng.choice([first + 1, stream.rng.randrange(first + 1, len(stream.fpdus))])
    for number in (first, second):
        stream.change(number, "swap")
    one, other = stream.fpdus[first], stream.fpdus[second]
    stream.fpdus[first], stream.fpdus[second] = other, one


def duplicate(stream: Stream) -> None:
    """An FPDU again, at once or later."""
    number = stream.pick()
    if number is None:
        return
    fpdu = stream.fpdus[number]
    where = stream.rng.choice([number + 1, stream.rng.randint(number + 1, len(stream.fpdus))])
    stream.fpdus.insert(where, replace(fpdu, mutations=(*fpdu.mutations, "duplicate")))


def drop(stream: Stream) -> None:
    """An FPDU is missing, so the next one is not the one that is expected."""
    number = stream.pick()
    if number is not None and number + 1 < len(stream.fpdus):
        del stream.fpdus[number]
        stream.change(number, "drop")


def one_more(stream: Stream) -> None:
    """One more message of a queue at the end, for which there may be no buffer."""
    number = stream.pick(_untagged)
    if number is None:
        return
    fpdu = stream.fpdus[number]
    numbers = [
        fields.MSN.read(other.ulpdu)
        for other in stream.fpdus
        if _untagged(other) and fields.QN.read(other.ulpdu) == fields.QN.read(fpdu.ulpdu)
    ]
    for step in range(1, stream.rng.choice([2, 2, 3, 6])):
        msn = (max(numbers) + step) % 2**32
        ulpdu = fields.MSN.write(fpdu.ulpdu, msn)
        stream.fpdus.append(
            replace(fpdu, ulpdu=ulpdu, mutations=(*fpdu.mutations, "one more message"))
        )


def garbage(stream: Stream) -> None:
    """An FPDU of any bytes."""
    rng = stream.rng
    ulpdu = rng.randbytes(rng.choice([1, rng.randrange(1, 30), rng.randrange(1, 200)]))
    fpdu = Fpdu("garbage", ulpdu, mutations=("garbage",))
    stream.fpdus.insert(rng.randint(0, len(stream.fpdus)), fpdu)


# MPA


def change_pad(stream: Stream) -> None:
    """PAD that is not zero."""
    number = stream.pick(lambda fpdu: mpa.pad_length(len(fpdu.ulpdu)) > 0)
    if number is not None:
        pad = stream.rng.randbytes(mpa.pad_length(len(stream.fpdus[number].ulpdu)))
        stream.change(number, "PAD", pad=pad)


def change_crc(stream: Stream) -> None:
    """Another CRC."""
    number = stream.pick()
    if number is not None:
        mask = stream.rng.choice([1, 1 << 31, 0xFFFFFFFF, 1 << stream.rng.randrange(32)])
        stream.change(number, "CRC", crc_mask=mask)


def change_marker(stream: Stream) -> None:
    """A Marker with another FPDUPTR, or with its reserved bits set."""
    number = stream.pick(lambda fpdu: len(fpdu.ulpdu) > 30) if stream.setting.markers_in else None
    if number is None:
        return
    rng, which = stream.rng, stream.rng.randrange(8)
    name, edit = rng.choice(
        [
            ("FPDUPTR", MarkerEdit(which, mask=4 << rng.randrange(14))),
            ("FPDUPTR", MarkerEdit(which, octets=bytes(2) + rng.randbytes(2))),
            ("reserved bits of FPDUPTR", MarkerEdit(which, mask=rng.randrange(1, 4))),
            ("reserved octets of a Marker", MarkerEdit(which, mask=1 << 16 + rng.randrange(16))),
            ("Marker removed", MarkerEdit(which, octets=b"")),
            ("Marker twice", MarkerEdit(which, octets=rng.randbytes(2 * MARKER_OCTETS))),
        ]
    )
    stream.edit(number, name, edit, rng.random() < 0.8)


MUTATIONS: dict[Mutation, int] = {
    flip_bit: 3,
    flip_header_bit: 6,
    change_field: 16,
    retarget: 10,
    invalidate: 4,
    other_message: 5,
    other_header: 2,
    cut_ulpdu: 4,
    extend_ulpdu: 4,
    claim_length: 5,
    remove_octets: 1,
    insert_octets: 1,
    end_stream: 2,
    swap: 3,
    duplicate: 4,
    drop: 3,
    one_more: 5,
    garbage: 2,
    change_pad: 2,
    change_crc: 2,
    change_marker: 5,
}
"""How often each is taken, in comparison with the others."""


def mutate(stream: Stream) -> None:
    """One mutation, or sometimes a few."""
    kinds, weights = list(MUTATIONS), list(MUTATIONS.values())
    for _ in range(stream.rng.choice([1, 1, 1, 2, 3])):
        stream.rng.choices(kinds, weights)[0](stream)
