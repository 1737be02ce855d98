"""Pieces of messages: which of them the STag table has to allow, and that they have bytes."""

from amaranth.hdl import Mux

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.mulpdu import MIN_MULPDU
from stagecoach.gateware.rdmap.transmit.cut import TransmitCut
from stagecoach.gateware.rdmap.transmit.message import piece_layout
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.invariants import invariants, needs
from stagecoach.hw.formal.property import Mutation, Property, in_harness
from stagecoach.hw.interface.wire import ATOMIC_OCTETS, UNTAGGED_HEADER_OCTETS

CONFIG = RnicConfig(qps=4)
NAME = "rdmap.transmit.cut.TransmitCut"


def _pieces(h: Harness) -> None:
    cut = TransmitCut(CONFIG)
    inside = h.block(cut)
    stream, offered = cut.message, cut.piece
    message, piece = stream.p, offered.p
    h.assume(h.held(stream))
    for _, condition in needs(h, NAME, inside):
        h.assume(condition)
    invariants(h, NAME, inside)
    # What `TransmitChoose` does (`transmit_choose`)
    h.assume(~h.past(stream.valid & stream.ready) | ~stream.valid)
    begins = message.begins_atomic
    for name in ("inline", "begins_atomic"):
        h.assume(~h.past(stream.valid) | (message[name] == h.past(message[name])))
    h.assume(~begins | ~(message.bare | message.is_local | message.inline | message.terminating))
    h.assume(~begins | ~(message.is_immediate | message.is_atomic))
    h.assume(~message.is_atomic | message.inline)
    h.assume(~message.terminating | (message.bare & ~message.is_local))
    least = MIN_MULPDU - UNTAGGED_HEADER_OCTETS
    capacities = (message.tagged_capacity >= least) & (message.untagged_capacity >= least)
    whole_target = (message.remaining == ATOMIC_OCTETS) & (message.inbound.length == ATOMIC_OCTETS)
    whole_target &= message.responding & (message.progress.done == 0)
    h.assume(~begins | (whole_target & capacities))
    # What `TransmitCheck` does (`transmit_issue`): the last piece of an FPDU ends it.
    h.assume(~(offered.valid & offered.ready) | cut.over | (piece.asks & ~piece.covers))

    silent = message.is_local | message.terminating
    h.check("nothing is asked for", ~(offered.valid & silent) | ~piece.asks)
    target = piece.asks | piece.failed
    h.check("the target of an atomic is asked about", ~(offered.valid & begins) | target)
    all_of_it = (piece.octets == ATOMIC_OCTETS) & piece.covers
    h.check("all of it", ~(offered.valid & begins & piece.asks) | all_of_it)
    named = piece.element_stag == message.inbound.source_stag
    named &= piece.address == message.inbound.source_tagged_offset
    h.check("where its request says", ~(offered.valid & begins & piece.asks) | named)
    octets = (piece.octets != 0) & (piece.octets <= 65535)
    of_memory = offered.valid & piece.asks & ~message.inline
    h.check("1 to 65535 bytes", ~of_memory | octets)
    has = inside.signal("remaining")
    h.check("no more than the element has", ~of_memory | (piece.octets <= has))
    taken = h.past(offered.valid & offered.ready)
    for name in ("asks", "octets", "covers"):
        h.check(f"{name} for a cycle more", ~taken | (piece[name] == h.past(piece[name])))
    for name in ("inline", "begins_atomic"):
        same = message[name] == h.past(message[name])
        h.check(f"{name} for a cycle more", ~taken | same)
    h.cover("second piece", of_memory & (piece.element == 1))

    now = inside.view("piece", piece_layout(CONFIG))
    first, whole, left = (inside.signal(name) for name in ("first_piece", "whole", "left"))
    remaining, none_left = inside.signal("remaining"), inside.signal("none_left")
    none_remaining = inside.signal("none_remaining")
    away = inside.in_state("RANGE")
    capacity = Mux(message.tagged, message.tagged_capacity, message.untagged_capacity)
    fits = (message.remaining <= capacity) | message.inline
    h.invariant("whole", away | ~first | ~inside.in_state("OFFSET") | ~whole | fits)
    is_known = inside.signal("capacity") == capacity
    h.invariant("capacity", ~inside.in_state("OFFSET") | is_known)
    h.invariant("whole is measured", ~inside.in_state("OFFSET") | (whole == fits))
    begun = inside.in_state("REMOTE_STAG", "REMOTE_OFFSET", "OPERANDS", "PIECE", "NEXT")
    cut_off = begun | (~first & (stream.valid | ~away))
    good = (message.inline | (left <= 65535)) & (~begins | (left != 0))
    failed = inside.signal("failed")
    h.invariant("left", ~cut_off | ~stream.valid | good)
    compared = inside.in_state("REMOTE_OFFSET")
    h.invariant("covers", ~compared | (now.covers == (left <= remaining)))
    started = inside.in_state("REMOTE_STAG", "REMOTE_OFFSET", "OPERANDS", "PIECE")
    later = inside.signal("later_element")
    at_first = ~begins | ~stream.valid | (first & ~later)
    h.invariant("target at first", ~inside.in_state("RANGE", "OFFSET") | at_first)
    walks = inside.in_state("NEXT", "STAG_AGAIN", "RANGE_AGAIN", "SUM", "SUM_CHECK")
    h.invariant("one element", ~walks | ~begins)
    begun_now = inside.in_state("OFFSET") & begins
    element = (cut.offset == 0) & (now.element_length == ATOMIC_OCTETS)
    h.invariant("target", ~begun_now | element)
    inbound, aims = message.inbound, started | inside.in_state("OFFSET")
    at_stag = now.element_stag == inbound.source_stag
    h.invariant("STag of the target", ~(aims & begins) | at_stag)
    to_come = inside.in_state("REMOTE_STAG") & begins
    at_offset = (now.element_offset == inbound.source_tagged_offset) & (cut.offset == 0)
    h.invariant("Tagged Offset of the target", ~to_come | at_offset)
    is_aimed = inside.in_state("REMOTE_OFFSET", "PIECE") & begins
    at_address = now.address == inbound.source_tagged_offset
    h.invariant("address of the target", ~is_aimed | at_address)
    full = (inside.signal("remaining") == ATOMIC_OCTETS) & (left == ATOMIC_OCTETS)
    h.invariant("all of the target", ~(started & begins) | full)
    h.invariant("none left", ~compared | (none_left == (left == 0)))
    h.invariant("none remaining", ~compared | (none_remaining == (remaining == 0)))
    asks = inside.in_state("PIECE", "OPERANDS", "NEXT")
    local = ~message.is_local | ~now.asks
    h.invariant("local", ~asks | local)
    taken = now.octets == Mux(now.covers, left, remaining)
    covers = now.covers == (left <= remaining)
    h.invariant("piece", ~(asks & now.asks) | (taken & covers & (left != 0)))
    some = message.is_atomic | (remaining != 0)
    h.invariant("some", ~(inside.in_state("PIECE") & now.asks) | some)
    ends = ~inside.in_state("PIECE") | now.asks | failed | ~begins
    h.invariant("target", ends)
    h.invariant("operands", ~inside.in_state("OPERANDS") | message.is_atomic)
    h.invariant("sent", ~inside.in_state("NEXT") | (now.octets < left) | (now.octets == 0))
    h.invariant("bare", ~(stream.valid & message.bare) | (away & ~now.asks))
    h.invariant("fresh", stream.valid | away)


MODULE = "stagecoach.gateware.rdmap.transmit.cut"

PROPERTIES = (
    Property(
        NAME,
        "pieces of memory have 1 to 65,535 bytes, and the target of an atomic is asked about",
        in_harness(_pieces),
        mutations=(
            Mutation(
                MODULE, "piece.asks.eq(~none_left & ~message.is_local)", "piece.asks.eq(~none_left)"
            ),
            Mutation(MODULE, "with m.Elif(none_remaining & ~none_left", "with m.Elif(none_left"),
            Mutation(
                MODULE,
                "piece.octets.eq(Mux(piece.covers, left, remaining))",
                "piece.octets.eq(left)",
            ),
            Mutation(
                MODULE, "left.eq(Mux(whole, message.remaining, capacity))", "left.eq(capacity)"
            ),
            Mutation(MODULE, "Mux(responding, inbound.source_stag, ", "Mux(0, 0, "),
            Mutation(
                MODULE,
                "with m.If(self.piece.ready):",
                "m.d.sync += piece.covers.eq(0)\n                with m.If(self.piece.ready):",
            ),
        ),
        depth=1,
        reached=3,
    ),
)
