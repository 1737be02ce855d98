"""The pieces of a good Send are numbered in order, not empty, and together all of its payload."""

from amaranth.hdl import Mux, Signal

from stagecoach.hw.formal import receiver, rfc_checks
from stagecoach.hw.formal.judge import Followed
from stagecoach.hw.formal.properties.receive_judge import header, judge_property


def _scattered(f: Followed) -> None:
    """Pieces of a Send: numbered in order, and together all of its payload."""
    h, ulpdu, inside, state = f.h, f.ulpdu, f.inside, f.state
    record, piece = f.ports.record.payload, f.ports.piece
    is_send = ulpdu.is_any(rfc_checks.SENDS)
    count = receiver.judge_verdict(inside).pieces
    scan = inside.child("pieces").child("scan")
    gone, octets = Signal.like(count), Signal(33)
    scans = state("SCAN") & (scan.signal("asked") > 2)
    with h.m.If(f.age < 5):
        h.m.d.sync += [gone.eq(0), octets.eq(0)]
    with h.m.Elif(piece.valid):
        h.m.d.sync += [gone.eq(gone + 1), octets.eq(octets + piece.piece.octets)]
    now = gone + piece.valid
    together = octets + Mux(piece.valid, piece.piece.octets, 0)
    nothing = state("SEND_CHECK", "ENTRY") | (state("SCAN") & ~scans)
    h.invariant("none", ~nothing | ((now == 0) & (together == 0)))
    h.invariant("given", ~scans | ~is_send | (now == scan.signal("count")))
    left = scan.signal("left")
    h.check("no more than all", ~scans | ~is_send | (together <= ulpdu.payload))
    h.invariant("payload", ~scans | ~is_send | (together + left == ulpdu.payload))
    all_cut = (left == 0) & ((scan.signal("asked") > 2) | (ulpdu.payload == 0))
    h.check("complete", ~f.good | ~is_send | all_cut)
    in_order = piece.valid & (piece.number != gone[: len(piece.number)])
    h.check("numbered in order", ~(scans | f.good) | ~is_send | ~in_order)
    h.check("filled", ~scans | ~is_send | ~piece.valid | (piece.piece.octets != 0))
    in_bank = ~piece.valid | (piece.bank == record.bank)
    h.invariant("its bank", ~(scans | f.good) | ~is_send | in_bank)
    all_there = (now == count) & (together == ulpdu.payload)
    h.check("all of a Send", ~f.good | ~is_send | all_there)


PROPERTIES = (
    judge_property(
        "the pieces of a good Send are numbered, not empty, and together all of its payload",
        [header, _scattered],
        [
            ("receive.pieces", "Mux(kind.takes_entry, scan.count, 0)", "0"),
            ("receive.scan", "Mux(beyond[-1], left, room)", "left"),
            ("receive.scan", "room_valid & (room != 0) & (left != 0)", "room_valid & (left != 0)"),
        ],
        mutant_cycles=4,
    ),
)
