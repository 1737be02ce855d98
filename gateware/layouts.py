"""What flows between the blocks: payload layouts, and what their fields may hold.

`docs/architecture.md` says which block speaks to which and what each must guarantee. Wire formats
are not here but in `ddp/headers.py` and `rdmap/headers.py`; ports stand with
the blocks that own them.
"""

from amaranth import unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.encodings import encoding
from stagecoach.hw.interface import llp, queue_entries
from stagecoach.hw.interface.wire import (
    ATOMIC_REQUEST_HEADER_OCTETS,
    READ_REQUEST_HEADER_OCTETS,
    UNTAGGED_HEADER_OCTETS,
)

ULPDU_HEADER_OCTETS = UNTAGGED_HEADER_OCTETS + ATOMIC_REQUEST_HEADER_OCTETS
"""Longest header kept beside an FPDU: untagged DDP header and Atomic Request header."""


TERMINATED_HEADER_OCTETS = UNTAGGED_HEADER_OCTETS + READ_REQUEST_HEADER_OCTETS
"""Longest header that an error tells of: untagged DDP header and Read Request header."""


LlpEventKind = encoding(
    "LlpEventKind",
    llp.LlpEventKind.__members__,
    unsigned(2),
    "What an LLP event says of its connection.",
)


class QpCommandKind(enum.Enum, shape=unsigned(3)):
    """A step in the life of a QP, or of a shared receive ring."""

    NONE = 0
    CREATE = 1  # rings and PD are set, counters start anew; entries may be posted
    CONNECT = 2  # the LLP connection is in Full Operation; segments may flow
    STOP = 3  # the QP goes to the error state
    DESTROY = 4  # the QP is unused again; every block forgets it
    # Of receive ring `qp`; only those hear of it who know rings.
    RING_CREATE = 5  # it is a shared one
    RING_DESTROY = 6  # it is unused again, and no QP takes from it
    RING_LIMIT = 7  # one event tells when a QP leaves fewer entries than `limit`


class SegmentKind(enum.Enum, shape=unsigned(3)):
    """What the MPA receiver says of a connection; bit 2 is set if it is about no FPDU."""

    FPDU = 0  # a whole FPDU with good CRC is in the store
    CRC_ERROR = 1
    MARKER_ERROR = 2
    CLOSED = 4  # the LLP closed and every whole FPDU before it was passed on
    CLOSED_INSIDE = 5  # the same, and bytes are left that are no whole FPDU


class StagStatus(enum.Enum, shape=unsigned(3)):
    """Result of an STag check, in the order in which the checks are made."""

    OK = 0
    INVALID = 1
    NOT_ASSOCIATED = 2
    NOT_PERMITTED = 3
    WRAP = 4
    BOUNDS = 5


class DeliveryKind(enum.Enum, shape=unsigned(2)):
    """What is delivered when its placement, and all before it, is visible in host memory."""

    RECEIVE = 0  # a receive entry completes
    READ = 1  # the oldest outstanding RDMA Read or atomic of the QP completes
    REQUEST = 2  # the QP's oldest inbound request that was not delivered may be answered


AtomicOperation = encoding(
    "AtomicOperation",
    queue_entries.AtomicOperation.__members__,
    unsigned(2),
    "The low bits of the AOpCode (RFC 7306, Figure 5; Swap: draft-ietf-storm-rdmap-ext-00).",
)


BEAT = data.StructLayout({"data": 64, "octets": 4, "last": 1})
"""Packed bytes: `octets` (1 to 8) of them from lane 0; all beats but the last have 8."""


OPERANDS = data.StructLayout(
    {
        "operation": AtomicOperation,
        "data": 64,  # Add or Swap Data
        "mask": 64,  # Add or Swap Mask; Swap ignores it
        "compare": 64,  # CmpSwap: Compare Data
        "compare_mask": 64,  # CmpSwap
    }
)
"""What an Atomic Request asks for (RFC 7306, 5.2.1), every field as a number."""


class Layouts:
    """The payload layouts that depend on the sizes of the device."""

    def __init__(self, config: RnicConfig):
        qp = config.qp_bits
        cq = config.cq_bits
        store = config.store_address_bits
        depth = range(config.read_queue_depth + 1)

        self.qp_number = data.StructLayout({"qp": qp})

        self.qp_command = data.StructLayout(
            {
                "kind": QpCommandKind,
                "qp": qp,
                "pd": 16,  # CREATE
                "send_cq": cq,  # CREATE
                "receive_cq": cq,  # CREATE
                "send_base": 64,  # CREATE: host address of the send ring
                "send_log2": 4,  # CREATE: log2 of its units
                "receive_base": 64,  # CREATE, RING_CREATE
                "receive_log2": 4,  # CREATE, RING_CREATE
                "shared": 1,  # CREATE, DESTROY: it takes its receive entries from `ring`
                "ring": qp,  # CREATE
                "limit": 16,  # RING_LIMIT
                "producer": 16,  # RING_LIMIT: running number after the last entry posted
                "ord": depth,  # CONNECT: Read Requests this end may have outstanding
                "ird": depth,  # CONNECT: Read Requests this end takes
                "emss": 16,  # CONNECT: bytes
                "crc": 1,  # CONNECT: CRC generated and checked
                "transmit_markers": 1,  # CONNECT
                "receive_markers": 1,  # CONNECT
                "initiator": 1,  # CONNECT: may send before it received (RFC 5044, 7.1.2)
                "rfc7306": 1,  # CONNECT: takes the messages of RFC 7306
            }
        )

        # What is said of an FPDU in the store to release it
        self.stored = data.StructLayout(
            {
                "end": store,  # word after its last one (mod store size)
                "number": config.store_number_bits,  # one more than that of the FPDU before it
            }
        )

        self.llp_event = data.StructLayout({"connection": qp, "kind": LlpEventKind, "value": 32})

        # MPA receiver to RDMAP receiver. Byte i of the ULPDU is header[8i:8i+8]; bytes past
        # ulpdu_length are meaningless. The FPDU stands in the store from its ULPDU_Length field,
        # so byte i of the ULPDU is byte i + 2 from store_address.
        self.segment = data.StructLayout(
            {
                "qp": qp,
                "kind": SegmentKind,
                "ulpdu_length": 16,
                "header": 8 * ULPDU_HEADER_OCTETS,
                "store_address": store,  # word in which the FPDU starts
                "stored": self.stored,
            }
        )

        # RDMAP receiver to placer. `octets` may be 0: then only the release happens.
        self.placement = data.StructLayout(
            {
                "qp": qp,
                "address": 64,
                "octets": 17,
                "store_address": store,  # word with the first payload byte
                "store_octet": 3,  # and its lane
                "reversed": 1,  # the bytes of a store word turned round: a number for the host
                "release": 1,  # last placement of this FPDU: the store may forget it
                "stored": self.stored,
            }
        )

        self.delivery = data.StructLayout(
            {
                "kind": DeliveryKind,
                "qp": qp,
                "index": 16,  # RECEIVE: running number of the receive entry
                "length": 32,  # RECEIVE, READ: bytes of the message
                "flags": 8,  # CompletionFlags
                "detail": 64,  # as in a completion
                "after": 16,  # placements with bytes issued so far, mod 2^16
            }
        )

        self.stag_entry = data.StructLayout(
            {
                "stag": 32,
                "pd": 16,
                "rights": 4,  # Rights
                "scoped": 1,  # only for the stream of `qp`
                "qp": qp,
                "base": 64,  # TO of the first byte
                "length": 48,
                "address": 64,  # host address of the first byte
                "fast": 1,  # work requests may register it, now and when it was invalidated
            }
        )
        # What a work request of `entry.qp` asks for; its `scoped` and `fast` do not matter.
        self.stag_change = data.StructLayout(
            {
                "register": 1,  # else it is to be invalidated, and only `stag`, `pd`, `qp` count
                "entry": self.stag_entry,
            }
        )
        self.stag = data.StructLayout({"stag": 32})
        self.stag_request = data.StructLayout(
            {
                "stag": 32,
                "tagged_offset": 64,
                "octets": 32,
                "rights": 4,  # Rights that are all needed
                "exclusive": 1,  # the STag must be one of a single stream
                "pd": 16,
                "qp": qp,
            }
        )
        self.stag_response = data.StructLayout({"status": StagStatus, "address": 64})

        # What the peer asks for: both kinds begin with what they are about.
        self.inbound_read = data.StructLayout(
            {
                "source_stag": 32,
                "source_tagged_offset": 64,
                "sink_stag": 32,
                "sink_tagged_offset": 64,
                "length": 32,
            }
        )
        self.inbound_atomic = data.StructLayout(
            {"stag": 32, "tagged_offset": 64, "identifier": 32, "operands": OPERANDS}
        )
        self.inbound_request = data.StructLayout(
            {
                "atomic": 1,
                "of": data.UnionLayout({"read": self.inbound_read, "atomic": self.inbound_atomic}),
            }
        )
        # What this end asked for and waits for.
        self.outstanding_request = data.StructLayout(
            {
                "atomic": 1,
                "sink_stag": 32,
                "sink_tagged_offset": 64,
                "length": 32,  # of an atomic the running number of its send entry
            }
        )

        # What the completer keeps of a work request that was transmitted.
        self.sent_item = data.StructLayout(
            {"qp": qp, "index": 16, "opcode": 4, "signaled": 1, "length": 32}
        )

        # Transmitter to assembler and framer: one FPDU. Byte i of the DDP header is
        # header[8i:8i+8]; all after it comes as payload.
        self.ulpdu_job = data.StructLayout(
            {
                "qp": qp,
                "ulpdu_length": 16,
                "tagged": 1,  # the DDP header has 14 bytes, else 18
                "header": 8 * UNTAGGED_HEADER_OCTETS,
                "crc": 1,
                "markers": 1,
                "until_marker": 7,  # units of 4 bytes from the FPDU's start to the next Marker
                "empty": 1,  # there is no FPDU: only `close` and `report` count
                "close": 1,  # nothing follows on this connection: the LLP is to close it
                "report": 1,  # the last FPDU of a work request: report `sent` when it has left
                "sent": self.sent_item,
            }
        )

        # QP states to transmitter: the QP stopped; what to tell the peer.
        self.termination = data.StructLayout(
            {
                "qp": qp,
                "may_send": 1,  # the QP was allowed to send (RFC 5044, 7.1.2)
                "cause": 8,
                "ulpdu_length": 16,
                "header": 8 * TERMINATED_HEADER_OCTETS,
            }
        )

        self.completion = data.StructLayout(
            {
                "qp": qp,
                "cq": cq,
                "index": 16,
                "opcode": 8,  # CompletionOpcode
                "flags": 8,  # CompletionFlags
                # INVALIDATED: the STag, in the first 32 bits; IMMEDIATE: Immediate Data, byte i in
                # bits [8i+7:8i]
                "detail": 64,
                "length": 32,
            }
        )

        self.qp_error = data.StructLayout(
            {
                "qp": qp,
                "cause": 8,  # hw.interface.causes.Cause
                "index": 16,
                "ulpdu_length": 16,
                "header": 8 * TERMINATED_HEADER_OCTETS,  # the offending ULPDU as it came
            }
        )

        # `qp` is a QP that stopped, or with `srq` the number of a shared receive ring.
        self.event = data.StructLayout(
            {name: field.shape for name, field in self.qp_error} | {"srq": 1}
        )

        # An inline piece is not in host memory but in the next ceil(bytes / 8) inline words; the
        # lane of its `address` is 0.
        self.gather_piece = data.StructLayout({"address": 64, "octets": 17, "last": 1, "inline": 1})

        self.doorbell = data.StructLayout({"qp": qp, "producer": 16})
        self.cq_doorbell = data.StructLayout(
            {
                "cq": range(config.cqs + 1),  # number config.cqs is the event queue
                "consumer": 16,
                "arm": 1,  # raise the interrupt at the next entry ...
                "solicited": 1,  # ... of a solicited Send
            }
        )
        self.cq_command = data.StructLayout(
            {"cq": range(config.cqs + 1), "enable": 1, "base": 64, "log2": 4}
        )


class QpStrobe(wiring.Signature):
    """A one-cycle pulse about a QP; it cannot be refused."""

    def __init__(self, config: RnicConfig):
        super().__init__({"valid": Out(1), "qp": Out(config.qp_bits)})
