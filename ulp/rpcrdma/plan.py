"""How a call goes out: inline, with read chunks, or as one (RFC 8166, 3.5)."""

from collections.abc import Callable
from dataclasses import dataclass

from stagecoach.ulp.oncrpc.errors import MessageTooLong
from stagecoach.ulp.oncrpc.message import Bulk, Message, roundup
from stagecoach.ulp.rpcrdma.chunks import READ_SEGMENT_OCTETS
from stagecoach.ulp.rpcrdma.header import FIXED_OCTETS


@dataclass(frozen=True, slots=True)
class Plan:
    """The bulk items that become read chunks, in order; whether the stream does, at position 0."""

    reduced: tuple[Bulk, ...] = ()
    long: bool = False


def plan_call(
    message: Message,
    *,
    lists_octets: int,
    inline_octets: int,
    segments: Callable[[int], int],
    can_read: bool,
) -> Plan:
    """The least work for the peer with which the Send has at most `inline_octets`.

    Parameters
    ----------
    lists_octets: of the chunk lists with an empty read list.
    segments: of a chunk of so many bytes. can_read: whether the peer may read at all.

    Raises `MessageTooLong`.
    """
    octets = FIXED_OCTETS + lists_octets + message.whole_octets
    if octets <= inline_octets:
        return Plan()
    if not can_read:
        raise MessageTooLong(
            f"a call of {octets} bytes to a peer that may not read; allowed: 0 to {inline_octets}"
        )

    def saved(bulk: Bulk) -> int:
        return roundup(len(bulk.data)) - READ_SEGMENT_OCTETS * segments(len(bulk.data))

    reduced: list[Bulk] = []
    for bulk in sorted(message.bulks, key=saved, reverse=True):
        if octets <= inline_octets or saved(bulk) <= 0:
            break
        reduced.append(bulk)
        octets -= saved(bulk)
    chosen = tuple(bulk for bulk in message.bulks if any(bulk is each for each in reduced))
    if octets <= inline_octets:
        return Plan(chosen)
    left = message.whole_octets - sum(roundup(len(bulk.data)) for bulk in chosen)
    octets += READ_SEGMENT_OCTETS * segments(left) - left
    if octets > inline_octets:
        raise MessageTooLong(
            f"chunk lists of {octets} bytes in a Send; allowed: 0 to {inline_octets}"
        )
    return Plan(chosen, long=True)
