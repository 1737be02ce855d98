"""What flows between the blocks: every payload layout and every shared port signature.

`docs/architecture.md` says which block speaks to which and what each must guarantee. Wire formats
are not here but in `ddp/headers.py` and `rdmap/headers.py`.
"""

from amaranth import unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_WIDTH, RnicConfig
from stagecoach.gateware.encodings import encoding
from stagecoach.hw.interface import llp, queue_entries

ULPDU_HEADER_OCTETS = 70
"""Longest header kept beside an FPDU: untagged DDP header and Atomic Request header."""

TERMINATED_HEADER_OCTETS = 46
"""Longest header that an error tells of: untagged DDP header and Read Request header."""

DDP_HEADER_OCTETS = 18
"""Longest DDP header (RFC 5041, 4.3)."""

EVENT_HEADER_OCTETS = 18
"""Octets of the offending ULPDU that an event carries: its DDP header. Of a received Terminate
the first octets after its DDP header."""

RESPONSE_OKAY = 0
RESPONSE_SLVERR = 2
"""RRESP and BRESP (AMBA AXI, A3.4.4)."""

NO_COLLISION = {"no_rw_check": 1}
"""Attributes of a memory of which no word is ever used that was read in the cycle in which it was
written; without them yosys builds logic that keeps the old word."""


LlpEventKind = encoding(
    "LlpEventKind",
    llp.LlpEventKind.__members__,
    unsigned(2),
    "What an LLP event says of its connection.",
)


class QpCommandKind(enum.Enum, shape=unsigned(3)):
    """A step in the life of a QP."""

    NONE = 0
    CREATE = 1  # rings and PD are set, counters start anew; entries may be posted
    CONNECT = 2  # the LLP connection is in Full Operation; segments may flow
    STOP = 3  # the QP goes to the error state
    DESTROY = 4  # the QP is unused again; every block forgets it


class SegmentKind(enum.Enum, shape=unsigned(3)):
    """What the MPA receiver says of a connection; bit 2 is set if it is about no FPDU."""

    FPDU = 0  # a whole FPDU with good CRC is in the store
    CRC_ERROR = 1
    MARKER_ERROR = 2
    CLOSED = 4  # the LLP closed and every whole FPDU before it was passed on
    CLOSED_INSIDE = 5  # the same, and octets are left that are no whole FPDU


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
"""Packed octets: `octets` (1 to 8) of them from lane 0; all beats but the last have 8."""

WORD = data.StructLayout({"data": 64, "last": 1})
"""A 64-bit word at its host address: the lanes outside the command's octets are meaningless."""

READ_WORD = data.StructLayout({"data": 64, "last": 1, "error": 1})
"""As `WORD`, from host memory; `error` if the AXI response of this word was not OKAY."""

PAYLOAD_BEAT = data.StructLayout({"data": 64, "octets": 4, "last": 1, "error": 1})
"""As `BEAT`; `error`, on the last beat, if any octet of it could not be read."""

MEMORY_COMMAND = data.StructLayout({"address": 64, "octets": 17})
"""A read or write of 1 to 65535 octets of host memory at any alignment."""


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
                "receive_base": 64,  # CREATE
                "receive_log2": 4,  # CREATE
                "ord": depth,  # CONNECT: Read Requests this end may have outstanding
                "ird": depth,  # CONNECT: Read Requests this end takes
                "emss": 16,  # CONNECT: octets
                "crc": 1,  # CONNECT: CRC generated and checked
                "transmit_markers": 1,  # CONNECT
                "receive_markers": 1,  # CONNECT
                "initiator": 1,  # CONNECT: may send before it received (RFC 5044, 7.1.2)
                "rfc7306": 1,  # CONNECT: takes the messages of RFC 7306
            }
        )

        self.llp_event = data.StructLayout({"connection": qp, "kind": LlpEventKind, "value": 32})

        # MPA receiver to RDMAP receiver. Octet i of the ULPDU is header[8i:8i+8]; octets past
        # ulpdu_length are meaningless. The FPDU stands in the store from its ULPDU_Length field,
        # so octet i of the ULPDU is octet i + 2 from store_address.
        self.segment = data.StructLayout(
            {
                "qp": qp,
                "kind": SegmentKind,
                "ulpdu_length": 16,
                "header": 8 * ULPDU_HEADER_OCTETS,
                "store_address": store,  # word in which the FPDU starts
                "store_end": store,  # word after its last one (mod store size)
            }
        )

        # RDMAP receiver to placer. `octets` may be 0: then only the release happens.
        self.placement = data.StructLayout(
            {
                "qp": qp,
                "address": 64,
                "octets": 17,
                "store_address": store,  # word with the first payload octet
                "store_octet": 3,  # and its lane
                "reversed": 1,  # the octets of a store word turned round: a number for the host
                "release": 1,  # last placement of this FPDU: the store may forget it
                "store_end": store,
            }
        )

        self.delivery = data.StructLayout(
            {
                "kind": DeliveryKind,
                "qp": qp,
                "index": 16,  # RECEIVE: running number of the receive entry
                "length": 32,  # RECEIVE, READ: octets of the message
                "flags": 8,  # CompletionFlags
                "detail": 64,  # as in a completion
                "after": 16,  # placements with octets issued so far, mod 2^16
            }
        )

        self.stag_entry = data.StructLayout(
            {
                "stag": 32,
                "pd": 16,
                "rights": 4,  # Rights
                "scoped": 1,  # only for the stream of `qp`
                "qp": qp,
                "base": 64,  # TO of the first octet
                "length": 48,
                "address": 64,  # host address of the first octet
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

        # Transmitter to assembler and framer: one FPDU. Octet i of the DDP header is
        # header[8i:8i+8]; all after it comes as payload.
        self.ulpdu_job = data.StructLayout(
            {
                "qp": qp,
                "ulpdu_length": 16,
                "tagged": 1,  # the DDP header has 14 octets, else 18
                "header": 8 * DDP_HEADER_OCTETS,
                "crc": 1,
                "markers": 1,
                "until_marker": 7,  # units of 4 octets from the FPDU's start to the next Marker
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
                # INVALIDATED: the STag, in the first 32 bits; IMMEDIATE: Immediate Data, octet i in
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

        # An inline piece is not in host memory but in the next ceil(octets / 8) inline words; the
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


class AxiSignature(wiring.Signature):
    """AXI4 master with 64-bit addresses and one ID, named as AMBA names them.

    Flat members, so that exported names are `m_axi__awaddr` and the like.
    """

    def __init__(self, data_width: int = WORD_WIDTH):
        super().__init__(
            {
                "awaddr": Out(64),
                "awlen": Out(8),
                "awsize": Out(3),
                "awburst": Out(2),
                "awid": Out(1),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(data_width),
                "wstrb": Out(data_width // 8),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(64),
                "arlen": Out(8),
                "arsize": Out(3),
                "arburst": Out(2),
                "arid": Out(1),
                "arvalid": Out(1),
                "arready": In(1),
                "rid": In(1),
                "rdata": In(data_width),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class AxiLiteSignature(wiring.Signature):
    """AXI4-Lite seen from the master (the host); the device is its slave."""

    def __init__(self, address_width: int = 12):
        super().__init__(
            {
                "awaddr": Out(address_width),
                "awprot": Out(3),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(address_width),
                "arprot": Out(3),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(32),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class LlpSignature(wiring.Signature):
    """The LLP port, seen from the device: reliable, ordered octet streams, one per connection.

    A position counts the octets of one direction of a connection since the start of Full
    Operation, mod 2^32. See docs/architecture.md, "The LLP port". A beat has up to
    `config.data_width / 8` octets.
    """

    def __init__(self, config: RnicConfig):
        qp = config.qp_bits
        octets = config.data_width // 8
        super().__init__(
            {
                # One FPDU at a time: all its beats follow each other, without another connection's
                "tx_valid": Out(1),
                "tx_ready": In(1),
                "tx_connection": Out(qp),
                "tx_data": Out(config.data_width),
                # All of a beat, on the last one a multiple of 4
                "tx_octets": Out(range(octets + 1)),
                "tx_first": Out(1),
                "tx_last": Out(1),
                # With tx_last: this connection sends nothing more, the LLP closes it gracefully.
                # `tx_octets` is 0 if it is said without an FPDU.
                "tx_close": Out(1),
                # Read received octets [position, position + octets) without consuming them
                "rx_request_valid": Out(1),
                "rx_request_ready": In(1),
                "rx_request_connection": Out(qp),
                "rx_request_position": Out(32),
                "rx_request_octets": Out(17),
                # The answers, in the order of the requests, each from lane 0 of a beat of its own
                "rx_valid": In(1),
                "rx_ready": Out(1),
                "rx_data": In(config.data_width),
                # The LLP may forget received octets before the position
                "rx_release_valid": Out(1),
                "rx_release_ready": In(1),
                "rx_release_connection": Out(qp),
                "rx_release_position": Out(32),
                # LlpEventKind
                "event_valid": In(1),
                "event_ready": Out(1),
                "event_connection": In(qp),
                "event_kind": In(2),
                "event_value": In(32),
            }
        )


class QpStrobe(wiring.Signature):
    """A one-cycle pulse about a QP; it cannot be refused."""

    def __init__(self, config: RnicConfig):
        super().__init__({"valid": Out(1), "qp": Out(config.qp_bits)})


class EntryPort(wiring.Signature):
    """Consumer's side of a prefetched ring (`queues/ring_fetcher.py`), seen from the consumer.

    All count units. `level`, `posted` and `index` are those of QP `select` two cycles ago; `word`
    is word `word_address` of that QP's oldest units, two cycles after both were set. `coming` is
    what `select` is in the next cycle; if it is not, all of them are right a cycle later. Words of
    the second unit take a cycle more after `select` was set. A pop is
    of QP `select`, which has to be the same in the cycle before, as `coming` before that; the
    values are right three cycles later. A consumer never pops what `level` does not cover.

    Parameters
    ----------
    words: of the units that one entry may have.
    """

    def __init__(self, config: RnicConfig, words: int):
        super().__init__(
            {
                "coming": Out(config.qp_bits),
                "select": Out(config.qp_bits),
                "level": In(8),  # units on chip
                "posted": In(16),  # units posted and not popped
                "index": In(16),  # running number of the oldest unit
                "word_address": Out(range(words)),
                "word": In(64),
                "pop": Out(1),
                "popping": Out(1),  # the same, for those who only look at it
                "pop_both": Out(1),  # the entry has two units
            }
        )


class QpFifoReader(wiring.Signature):
    """Reader's side of a `queues/qp_fifo.py`, seen from the reader.

    `level` is that of QP `select` two cycles ago, right three cycles after a pop or push; `head`
    takes one cycle more. A reader never pops at level 0. `pop` is a one-cycle strobe for QP
    `pop_qp`, which stands from the cycle before on.
    """

    def __init__(self, config: RnicConfig, shape: data.StructLayout, depth: int):
        super().__init__(
            {
                "select": Out(config.qp_bits),
                "head": In(shape),
                "level": In(range(depth + 1)),
                "pop": Out(1),
                "pop_qp": Out(config.qp_bits),
            }
        )


class QpFifoWriter(wiring.Signature):
    """Writer's side of a `queues/qp_fifo.py`, seen from the writer.

    `level` is that of QP `select` two cycles ago. A writer never pushes to a full FIFO. `push` is
    a one-cycle strobe for QP `push_qp`, which stands from the cycle before on.
    """

    def __init__(self, config: RnicConfig, shape: data.StructLayout, depth: int):
        super().__init__(
            {
                "select": Out(config.qp_bits),
                "level": In(range(depth + 1)),
                "push": Out(1),
                "push_qp": Out(config.qp_bits),
                "item": Out(shape),
            }
        )


class ReadClient(wiring.Signature):
    """A client's side of `dma/read.py`: commands go out, words come back in command order."""

    def __init__(self) -> None:
        super().__init__(
            {
                "command": Out(stream.Signature(MEMORY_COMMAND)),
                "data": In(stream.Signature(READ_WORD)),  # last: of the command
            }
        )


class WriteClient(wiring.Signature):
    """A client's side of `dma/write.py`: a command and its words, none taken before the command.

    `done` pulses once a command, in their order, when every write response is there; `error`
    with it if one of them was not OKAY.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "command": Out(stream.Signature(MEMORY_COMMAND)),
                "data": Out(stream.Signature(WORD)),  # last: of the command
                "done": In(1),
                "error": In(1),
            }
        )


class StagClient(wiring.Signature):
    """A client's side of `stag/table.py`: one request at a time, one response pulse for it."""

    def __init__(self, layouts: Layouts) -> None:
        super().__init__(
            {
                "request": Out(stream.Signature(layouts.stag_request)),
                "response_valid": In(1),
                "response": In(layouts.stag_response),
            }
        )


class StorePort(wiring.Signature):
    """The placer's side of the FPDU store: read words by address, release FPDUs in order.

    `data` is the word at `address` three cycles ago: registers stand on both sides of the memory,
    which is spread over the whole chip. `release` with `release_end` frees every word before it.
    """

    LATENCY = 3

    def __init__(self, config: RnicConfig):
        store = config.store_address_bits
        super().__init__(
            {
                "address": Out(store),
                "data": In(64),
                "release": Out(1),
                "release_end": Out(store),
            }
        )
