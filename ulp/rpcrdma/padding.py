"""The padding of RDMA_MSGP, which aligns opaque data in the receive buffer (RFC 5666, 3.9).

The RFC leaves open from where the alignment counts, and a transport does not know which words of a
message are lengths of opaques. Here it counts from the first byte of the Send, as in what was
Linux' implementation, so that data in an aligned receive buffer is aligned; and the item with the
padding is the one that ends the message, the only one with a use for it (RFC 8166, 4.6.1).
"""

from stagecoach.ulp.oncrpc.message import roundup
from stagecoach.ulp.rpcrdma.header import Padding
from stagecoach.ulp.rpcrdma.xdr_words import WORD

THRESHOLD = 512
"""rdma_thresh of what this end sends: shorter items gain nothing by padding."""


def padding_octets(padding: Padding, before: int) -> int:
    """Bytes that come before an item whose first byte would be the byte `before` of the Send."""
    return -before % padding.align if padding.align else 0


def pad(stream: bytes, item: int, before: int, padding: Padding) -> bytes:
    """The stream with padding before the item that begins at `item` and ends it.

    `before` is the length of the header.
    """
    return stream[:item] + bytes(padding_octets(padding, before + item)) + stream[item:]


def unpad(stream: bytes, before: int, padding: Padding) -> bytes:
    """The inverse of `pad`, for a stream whose item is not known.

    A stream whose end is no such item has no padding, or one that nobody can find: it is left as
    it is.
    """
    for at in range(0, len(stream) - WORD + 1, WORD):
        octets = int.from_bytes(stream[at : at + WORD])
        item = at + WORD
        padded = item + padding_octets(padding, before + item)
        if octets > padding.threshold and padded + roundup(octets) == len(stream):
            return stream[:item] + stream[padded:]
    return stream
