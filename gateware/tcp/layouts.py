"""What flows between the blocks of the TCP engine."""

from collections.abc import Callable

from amaranth.hdl import C, Cat, Value
from amaranth.lib import data, enum

from stagecoach.gateware.encodings import encoding
from stagecoach.gateware.ethernet.layouts import OCTETS_BITS
from stagecoach.gateware.layouts import LlpEventKind
from stagecoach.gateware.tcp.rto import RTO
from stagecoach.hw.interface.network_entries import NetworkKind

KEY = data.StructLayout({"local": 32, "remote": 32, "local_port": 16, "remote_port": 16})
"""The ends of a connection, as numbers: the first byte of an address is its highest."""

SEGMENT = data.StructLayout(
    {
        "raw": 1,
        "octets": OCTETS_BITS,
        "header": 8,
        "payload": OCTETS_BITS,
        "key": KEY,
        "sequence": 32,
        "acknowledgment": 32,
        "flags": 8,
        "window": 16,
        "congestion": 2,
    }
)
"""A received frame that was kept. Numbers are as on the wire, the window is not scaled.

raw: not of TCP; then only `octets` counts. octets: of the frame. header: bytes before the payload
of TCP. payload: its octets. flags: of TCP, CWR to FIN. congestion: ECN of IPv4 (RFC 3168, 5).
"""

FLAGS = data.StructLayout(
    dict.fromkeys(("fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"), 1)
)
"""Control bits of TCP, as `flags` of `SEGMENT` has them (RFC 9293, 3.1)."""


class Due(enum.Enum, shape=2):
    """When the peer has to be sent an ACK (RFC 9293, 3.8.6.3; RFC 5681, 4.2)."""

    NONE = 0
    LATER = 1  # with data, or after the delay, or when this is said again
    NOW = 2


def received_segment(connection_bits: int) -> data.StructLayout:
    """Return the layout of a segment, and of what the lookup says of it.

    found: `connection` is that of its ends. placed: no frame of it is in the store; its payload is
    in the ring already.
    """
    return data.StructLayout(
        {"found": 1, "placed": 1, "connection": connection_bits, "segment": SEGMENT}
    )


def release_layout(connection_bits: int) -> data.StructLayout:
    """Return the layout of a release: the ring may forget what comes before.

    value: a position of the LLP; if `relative`, bytes after those that were released.
    """
    return data.StructLayout({"connection": connection_bits, "relative": 1, "value": 32})


class ReceiveOperation(enum.Enum, shape=2):
    """What is done with the receiving side of a connection."""

    BEGIN = 0  # it is established: all fields of the command count
    ATTACH = 1  # position 0 of the LLP is the first byte that was not released
    DISCARD = 2  # octets that come from now on are lost, and end it (RFC 9293, SHLD-3)


HEADERS_OCTETS = 40
"""Of IPv4 and TCP without options: a segment has at most the MTU less these."""

RING_ADDRESS_BITS = 48

PLACE = data.StructLayout(
    {
        "next": 32,
        "edge": 32,
        "released": 32,
        "base": 32,
        "fin": 32,
        "ring": RING_ADDRESS_BITS,
        "size": 4,
        "shift": 4,
        "fin_known": 1,
        "fin_taken": 1,
        "discards": 1,
        "dead": 1,
    }
)
"""What the receiving side knows of a connection, beside ranges out of order.

next: RCV.NXT. edge: right edge of the window. released: the ring may forget what is before. base:
number of the LLP's position 0. fin: number of the peer's FIN, if it is known; taken if all before
it came. ring, size, shift: as in `receive_command`. discards: bytes that come are lost. dead: the
connection was reset, or was lost.
"""

TABLE_ROW_BITS = 288
"""Of the sending side's table of connections: eight block RAMs' words of 36 bits."""

LIMITS = data.StructLayout({"oldest": 32, "highest": 32, "ended": 1})
"""What the sending side knows: least and greatest SEG.ACK of a true peer (RFC 5961, 5.2), and that
the connection has ended, so that its frames are for the driver."""

RING_LEAST_BITS = 17
"""log2 of the bytes of the smallest ring: 128 KiB hold the longest FPDU with Markers."""

RING_MOST_BITS = 30
"""log2 of the octets of the largest ring, and of the largest window (RFC 7323, 2.3)."""


def ring_masks(size: Value) -> tuple[Value, Value]:
    """Return the bytes of a ring of that `size`, and which bits of a number are a place in it."""
    sizes = range(RING_MOST_BITS - RING_LEAST_BITS + 1)
    octets = Cat(C(0, RING_LEAST_BITS), *(size == number for number in sizes))
    place = Cat(C(-1, RING_LEAST_BITS), *(size > number for number in sizes[:-1]))
    return octets, place


def receive_command(connection_bits: int) -> data.StructLayout:
    """Return the layout of a command.

    next: RCV.NXT. edge: right edge of the window that was announced last. ring: address of the
    ring, a multiple of 8. size: of the ring, 2^(17 + size) bytes, at most 2^30. shift:
    Rcv.Wind.Shift, at most 14.
    """
    return data.StructLayout(
        {
            "operation": ReceiveOperation,
            "connection": connection_bits,
            "next": 32,
            "edge": 32,
            "ring": RING_ADDRESS_BITS,
            "size": 4,
            "shift": 4,
        }
    )


def settle_note(connection_bits: int) -> data.StructLayout:
    """Return the layout of what is said of a connection when all before it is stored.

    number: RCV.NXT. edge: right edge of the window. fin: the peer's FIN stands before `number`.
    begin: the connection is a new one.
    """
    return data.StructLayout(
        {
            "connection": connection_bits,
            "number": 32,
            "edge": 32,
            "due": Due,
            "fin": 1,
            "begin": 1,
        }
    )


NoteLayout = Callable[[int], data.StructLayout]
"""Layout of a note, for the bits of a connection: `connection`, `number`, `begin`, and others."""


def receive_job(connection_bits: int, note: NoteLayout = settle_note) -> data.StructLayout:
    """Return the layout of what is done with a frame, and what is said then.

    frame: there is one, and all of its words are taken. raw: it is for the driver, `octets` long.
    Otherwise its `octets` from byte `skip` on go to `address`, the last `wrapped` of them to the
    beginning of the `ring` instead. settle: `note` is said when they are stored.
    """
    return data.StructLayout(
        {
            "frame": 1,
            "raw": 1,
            "skip": OCTETS_BITS,
            "octets": OCTETS_BITS,
            "wrapped": OCTETS_BITS,
            "address": RING_ADDRESS_BITS,
            "ring": RING_ADDRESS_BITS,
            "settle": 1,
            "note": note(connection_bits),
        }
    )


def written_note(connection_bits: int, note: NoteLayout = settle_note) -> data.StructLayout:
    """Return the layout of a note, and of how many commands to memory it waits for."""
    return data.StructLayout({"writes": 2, "note": note(connection_bits)})


def settled_layout(connection_bits: int, note: NoteLayout = settle_note) -> data.StructLayout:
    """Return the layout of a note that came true; or memory `failed`, and `number` did not move."""
    return data.StructLayout({"failed": 1, "note": note(connection_bits)})


def ack_event(connection_bits: int) -> data.StructLayout:
    """Return the layout of what a segment means for the sending side.

    acknowledges: `acknowledgment`, `sequence` and `window` count, they are SEG.ACK, SEG.SEQ and
    SEG.WND, not scaled. empty: it has no data, no SYN and no FIN. fin: the peer's FIN is in order
    now. reset: it reset the connection. lost: it had data that nobody will read: answer by a reset.
    challenge: answer it by an ACK, if the limit of RFC 5961, 7 allows.
    """
    return data.StructLayout(
        {
            "connection": connection_bits,
            "acknowledges": 1,
            "acknowledgment": 32,
            "sequence": 32,
            "window": 16,
            "empty": 1,
            "fin": 1,
            "reset": 1,
            "lost": 1,
            "challenge": 1,
        }
    )


def attachment_layout(bits: int) -> data.StructLayout:
    """Return the layout of whose stream a lane of the LLP port has; both numbers have `bits`.

    If it is not `attached`, only `lane` and `connection` count. base: number of position 0 of the
    received stream. ring, size: as in `receive_command`.
    """
    return data.StructLayout(
        {
            "lane": bits,
            "connection": bits,
            "attached": 1,
            "base": 32,
            "ring": RING_ADDRESS_BITS,
            "size": 4,
        }
    )


def sender_event(bits: int) -> data.StructLayout:
    """Return the layout of what the sending side says to the LLP port, as an event of that."""
    return data.StructLayout({"connection": bits, "kind": LlpEventKind, "value": 32})


def fpdu_layout(connection_bits: int) -> data.StructLayout:
    """Return the layout of what is said of an FPDU that the LLP port gave.

    octets: of it; 0 if there is none. sum: of the bytes, as `ip/checksum.py` gives it. close:
    nothing follows it on this connection.
    """
    return data.StructLayout(
        {"connection": connection_bits, "octets": OCTETS_BITS, "sum": 16, "close": 1}
    )


FATE = data.StructLayout({"octets": OCTETS_BITS, "sends": 1})
"""What becomes of an FPDU with that many bytes: it is sent out of the store, or not."""


def transmit_job(connection_bits: int) -> data.StructLayout:
    """Return the layout of what is written to a ring of what is sent.

    fpdu: the words of the next FPDU are taken, and its `octets`, all or none, are written; without
    it the `octets` are in the ring already. number: of the first of them. ring, size: as in
    `receive_command`. begin: the connection is a new one.
    """
    return data.StructLayout(
        {
            "connection": connection_bits,
            "fpdu": 1,
            "octets": OCTETS_BITS,
            "number": 32,
            "ring": RING_ADDRESS_BITS,
            "size": 4,
            "begin": 1,
        }
    )


def stored_note(connection_bits: int) -> data.StructLayout:
    """Return the layout of a note about what is sent: all before `number` is in the ring."""
    return data.StructLayout({"connection": connection_bits, "number": 32, "begin": 1})


DEADLINE = data.StructLayout({"armed": 1, "at": 32})
"""A time in microseconds, modulo 2^32, if it is `armed`."""

DEADLINES = data.StructLayout({"resend": DEADLINE, "acknowledge": DEADLINE})
"""Of a connection: the retransmission, or persist, timer, and that of the delayed ACK."""


def due_layout(connection_bits: int) -> data.StructLayout:
    """Return the layout of which deadlines of a connection have come: to resend, to acknowledge."""
    return data.StructLayout({"connection": connection_bits, "resend": 1, "acknowledge": 1})


class SendKind(enum.Enum, shape=2):
    """Where the payload of a segment comes from."""

    NOTHING = 0  # it has none
    STORE = 1  # it is the next FPDU of the store
    RING = 2


def send_job(connection_bits: int) -> data.StructLayout:
    """Return the layout of a segment that is sent: all that is known before its header is built.

    sequence, octets: SEG.SEQ, and of the payload. sum: of the payload, if it is from the store.
    flags: `FLAGS`. blocks: SACK blocks may be in it (RFC 2018, 3). needed: it is sent also if the
    peer knows all that it says. again: it begins with what was sent before.
    """
    return data.StructLayout(
        {
            "connection": connection_bits,
            "kind": SendKind,
            "sequence": 32,
            "octets": OCTETS_BITS,
            "sum": 16,
            "flags": FLAGS.size,
            "blocks": 1,
            "needed": 1,
            "again": 1,
        }
    )


class TransmitOperation(enum.Enum, shape=3):
    """What is done with the sending side of a connection."""

    BEGIN = 0  # it is established: all fields of the command but `octets` count
    SEND = 1  # `octets` are in the ring already, and are sent
    FINISH = 2  # CLOSE: FIN follows what was queued
    ABORT = 3  # a reset ends it
    RESIZE = 4  # another `emss`
    ATTACH = 5  # position 0 of the LLP is what is queued next
    DETACH = 6  # the LLP hears no more of windows
    INFO = 7  # all that is known of it is told, word by word; nothing changes


def transmit_command(connection_bits: int) -> data.StructLayout:
    """Return the layout of a command.

    number: SND.UNA and SND.NXT. window: SND.WND, scaled. window_from: SND.WL1. edge: right edge of
    our window, as the receiving side began with it. announced: of the window that was announced
    last. cwnd, rto: as the handshake left them. ring, size: as in
    `receive_command`. shift: Snd.Wind.Shift, at most 14. emss: bytes of the longest segment, 1 at
    least. octets: of SEND, at least 1.
    """
    return data.StructLayout(
        {
            "operation": TransmitOperation,
            "connection": connection_bits,
            "number": 32,
            "window": 32,
            "window_from": 32,
            "edge": 32,
            "announced": 32,
            "cwnd": 32,
            "rto": RTO,
            "ring": RING_ADDRESS_BITS,
            "size": 4,
            "shift": 4,
            "emss": OCTETS_BITS,
            "octets": OCTETS_BITS,
        }
    )


NoticeKind = encoding(
    "NoticeKind",
    {name: kind for name, kind in NetworkKind.__members__.items() if kind <= NetworkKind.MEMORY},
    3,
    "What the driver is told of a connection: that it is suspect, or why it has ended.",
)


def notice_layout(connection_bits: int) -> data.StructLayout:
    """Return the layout of what the driver is told. number: SND.MAX."""
    return data.StructLayout({"connection": connection_bits, "kind": NoticeKind, "number": 32})


TRANSMIT_SETTINGS = data.StructLayout(
    dict.fromkeys(("rto_minimum", "rto_maximum", "r2", "delayed_ack"), 32)
)
"""Of all connections, in microseconds, below 2^29: bounds of the RTO (RFC 6298, 2.4 and 2.5), R2
(RFC 9293, 3.8.3), and how long an ACK may wait (RFC 9293, 3.8.6.3)."""
