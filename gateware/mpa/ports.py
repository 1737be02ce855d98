"""The ports between the blocks of the MPA receiver: scheduler, deframer and FPDU store."""

from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.mpa.layouts import ANSWER, MpaLayouts


class LlpSignature(wiring.Signature):
    """The LLP port, seen from the device: reliable, ordered byte streams, one per connection.

    A position counts the bytes of one direction of a connection since the start of Full
    Operation, mod 2^32. See docs/architecture.md, "The LLP port". A beat has up to
    `config.data_width / 8` bytes.
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
                # Read received bytes [position, position + bytes) without consuming them
                "rx_request_valid": Out(1),
                "rx_request_ready": In(1),
                "rx_request_connection": Out(qp),
                "rx_request_position": Out(32),
                "rx_request_octets": Out(17),
                # The answers, in the order of the requests, each from lane 0 of a beat of its own
                "rx_valid": In(1),
                "rx_ready": Out(1),
                "rx_data": In(config.data_width),
                # The LLP may forget received bytes before the position
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


class StorePort(wiring.Signature):
    """The placer's side of the FPDU store: read words by address, release FPDUs in any order.

    `data` is the word at `address` three cycles ago: registers stand on both sides of the memory,
    which is spread over the whole chip. `release` with `released` says that no word of an FPDU is
    read any more, once for each.
    """

    LATENCY = 3

    def __init__(self, config: RnicConfig):
        store = config.store_address_bits
        super().__init__(
            {
                "address": Out(store),
                "data": In(64),
                "release": Out(1),
                "released": Out(Layouts(config).stored),
            }
        )


class VisitPort(wiring.Signature):
    """Visits of the deframer to connections, seen from the one who leads it there.

    Members
    -------
    visit: the next visit. It is taken in the cycle after the deframer has turned to it, at most one
        in four cycles.
    held: of that visit: no command came for its connection. As it is when the visit is taken; the
        words of one that is not held are dropped, and so is the last FPDU of the visit before, if
        it is not committed: its `end` says so, and it has to be requested again.
    answer: the requests made to the LLP, in order, and where the answers to a visit end. Each is
        there before the answer of the LLP can be.
    drop: a pulse, the visit taken last is not held any more.
    took: a word of an answer was used or dropped, a cycle ago.
    dropped: nothing more of the visit taken last is used: it is not held, an FPDU was wrong, or the
        last FPDU of the visit before was.
    inside: the bytes end inside an FPDU. fpdu_octets: its length with Markers, or that of the last
        one; fpdu_end: the position after it. All three as they were some cycles ago; they help to
        choose where a visit ends, and no more.
    ended: a pulse, at most one in four cycles, in the order of the visits: one came to `end`.
    """

    def __init__(self, config: RnicConfig):
        mpa = MpaLayouts(config)
        super().__init__(
            {
                "visit": Out(stream.Signature(mpa.visit)),
                "held": Out(1),
                "answer": Out(stream.Signature(ANSWER)),
                "drop": Out(1),
                "took": In(1),
                "dropped": In(1),
                "inside": In(1),
                "fpdu_octets": In(17),
                "fpdu_end": In(32),
                "ended": In(1),
                "end": In(mpa.visit_end),
            }
        )


class ClosedPort(wiring.Signature):
    """The end of a connection, among the segments of all, seen from the one who knows of it.

    Members
    -------
    valid: say that the connection `qp` is closed; until `taken`, or until it does not count any
        more. Like `qp` and `inside`, it does not wait for `taken`.
    inside: bytes of it are left that are no whole FPDU.
    taken: a pulse, the segment that says so is on its way.
    """

    def __init__(self, config: RnicConfig):
        super().__init__(
            {"valid": Out(1), "qp": Out(config.qp_bits), "inside": Out(1), "taken": In(1)}
        )


class StoreWritePort(wiring.Signature):
    """The deframer's side of the FPDU store, seen from the deframer.

    Members
    -------
    write, word: append a word. Allowed for 8 cycles after `full` rose.
    address: where the next word goes.
    full: there is no room for more.
    commit, commit_end: everything before the address `commit_end` is verified.
    rewind: the next word goes after the last commit; not in the cycle of a `commit`.
    """

    def __init__(self, config: RnicConfig):
        address = config.store_address_bits
        super().__init__(
            {
                "write": Out(1),
                "word": Out(64),
                "address": In(address),
                "full": In(1),
                "commit": Out(1),
                "commit_end": Out(address),
                "rewind": Out(1),
            }
        )


class StoreNumberPort(wiring.Signature):
    """Numbers of the FPDUs in the store, seen from the deframer.

    Members
    -------
    commit: a pulse, an FPDU is committed; it has the `number`, as part of its `Layouts.stored`. At
        most 8 of them after `full` rose.
    full: there is room for no more FPDUs.
    """

    def __init__(self, config: RnicConfig):
        super().__init__(
            {"commit": Out(1), "number": In(config.store_number_bits), "full": In(1, init=1)}
        )
