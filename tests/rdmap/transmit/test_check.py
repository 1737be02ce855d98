"""A piece goes on when the rules of its message let it, and what follows is said exactly once."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.transmit.check import TransmitCheck
from stagecoach.gateware.rdmap.transmit.issue import record_layout
from stagecoach.gateware.rdmap.transmit.message import lookup_layout, piece_layout
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import Rights
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig()
LAYOUTS = Layouts(CONFIG)
PIECE, LOOKUP, RECORD = piece_layout(CONFIG), lookup_layout(CONFIG), record_layout(CONFIG)
FPDUS = 600
STROBES = (
    "ask",
    "hand",
    "handed",
    "begun",
    "atomic_begun",
    "kick",
    "inline_start",
    "kick_again",
    "end",
)
KINDS = (
    "send",
    "closed",
    "response",
    "read",
    "local",
    "bad rights",
    "refused",
    "failed",
    "terminate",
    "begins_atomic",
    "answers_atomic",
    "failed_atomic",
    "doomed",
)
RIGHTS = {
    "response": Rights.REMOTE_READ,
    "read": Rights.LOCAL_WRITE,
    "begins_atomic": Rights.REMOTE_READ | Rights.REMOTE_WRITE,
}


@pytest.mark.parametrize("pattern", ["always", "random"])
def test_transmit_check(pattern):
    run_cocotb(TransmitCheck(CONFIG), __name__, parameters={"PATTERN": pattern})


def _piece(rng, kind: str) -> dict:
    piece = unpack(PIECE, rng.getrandbits(width_of(PIECE)))
    message = piece["message"]
    names = ("terminating", "responding", "begins_atomic", "answers_atomic", "is_read", "is_atomic")
    for name in (*names, "is_local", "inline", "bare", "failed", "registers"):
        message[name] = 0
    piece["failed"], piece["asks"], piece["covers"] = int(kind == "failed"), 1, 1
    message["roomy"] = rng.getrandbits(1)
    if kind == "begins_atomic":
        message["begins_atomic"] = message["responding"] = 1
    elif kind in ("answers_atomic", "failed_atomic"):
        for name in ("answers_atomic", "responding", "inline", "bare"):
            message[name] = 1
        piece["asks"], piece["failed"] = 0, int(kind == "failed_atomic")
    elif kind == "closed":
        message["roomy"] = 0
    elif kind == "response":
        message["responding"] = 1
    elif kind == "read":
        message["is_read"] = message["inline"] = 1
    elif kind in ("local", "bad rights", "refused"):
        message["is_local"], message["registers"], piece["asks"] = 1, 1, 0
        piece["element_stag"] = rng.randrange(1, 2**28) << 4 if kind == "bad rights" else 5
    elif kind == "failed":
        piece["asks"] = 0
    elif kind == "terminate":
        message["terminating"], piece["asks"] = 1, 0
        message["inline"] = rng.getrandbits(1)
    return piece


class Neighbours:
    """What stands around the block: `TransmitIssue`, the STag table, and lengths."""

    def __init__(self, dut, rng, slow):
        self.dut, self.rng, self.slow = dut, rng, slow
        self.seen = []  # strobes, in their order, of a piece
        self.now = []  # those of the last cycle
        self.record, self.request, self.change = None, None, None
        self.failed_at_issue = False
        self._busy = 0

    def chance(self):
        return not self.slow or self.rng.random() < 0.4

    async def cycle(self, kind):
        """One cycle; returns whether the piece was taken, and whether nothing follows it."""
        dut, rng = self.dut, self.rng
        settled = self.chance()
        dut.free.value = self._busy == 0
        dut.settled.value, dut.window_open.value = settled, settled and kind != "closed"
        room, inline_room = self.chance(), self.chance()
        dut.room.value, dut.inline_room.value = room, inline_room
        dut.change__ready.value = self.chance()
        dut.refused.value = kind == "refused"
        await RisingEdge(dut.clk)
        if self.record == "next":
            self.record = unpack(RECORD, dut.record.value)
        now = [name for name in STROBES if getattr(dut, name).value]
        self.seen += now
        self.now = now
        if "hand" in now:
            assert self._busy == 0
            self.record = "next"
            self._busy = rng.randint(3, 9)
        elif self._busy:
            self._busy -= 1
        if "ask" in now:
            assert room and (inline_room or not self._inline)
            self.request = unpack(LAYOUTS.stag_request, dut.request.value)
        if dut.change__valid.value and dut.change__ready.value:
            self.change = unpack(LAYOUTS.stag_change, dut.change__payload.value)
        taken = bool(dut.piece__ready.value)
        return taken, taken and bool(dut.over.value)

    def begin(self, piece):
        self.seen, self.record, self.request, self.change = [], None, None, None
        self._inline = piece["message"]["inline"]


def _expected(kind: str, piece: dict, last: int) -> list[str]:
    """The strobes of a piece that is the only one of its FPDU."""
    message = piece["message"]
    kick = ["kick"] if not last or message["more"] else []
    inline = ["inline_start"] if message["inline"] else []
    return {
        "closed": ["end"],
        "doomed": ["kick_again", "end"],
        "read": ["ask", "hand", "handed", *kick, *inline],
        "local": ["hand", "handed", *kick],
        "bad rights": ["hand"],
        "refused": ["hand"],
        "failed": ["hand"],
        "terminate": ["hand", *inline],
        "begins_atomic": [
            "ask",
            "hand",
            "begun",
            "atomic_begun",
            *(["kick"] if message["more"] else []),
        ],
        "answers_atomic": ["hand", "handed", *kick, *inline],
        "failed_atomic": ["hand"],
    }.get(kind, ["ask", "hand", "handed", *kick])


AT_ONCE = ("send", "response", "read", "local", "begins_atomic", "answers_atomic")
"""Taken when they are handed over."""

CAUSES = {
    "bad rights": Cause.LOCAL_BAD_ENTRY,
    "refused": Cause.LOCAL_STAG_OPERATION,
}


async def _start(dut):
    rng = seeded_random(parameter("PATTERN"))
    StreamMonitor(dut, "change", keep=False)
    dut.piece__valid.value = dut.failing.value = dut.fresh.value = 0
    dut.free.value = 1
    await start_clock_and_reset(dut)
    return rng, Neighbours(dut, rng, parameter("PATTERN") != "always")


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_each_kind_of_fpdu_goes_its_way(dut):
    rng, around = await _start(dut)
    for number in range(FPDUS):
        kind = KINDS[number % len(KINDS)]
        piece = _piece(rng, kind)
        message = piece["message"]
        last = 0 if kind == "begins_atomic" else rng.getrandbits(1)
        lookup = unpack(LOOKUP, rng.getrandbits(width_of(LOOKUP)))
        around.begin(piece)
        dut.lookup.value, dut.last.value = pack(LOOKUP, lookup), last
        dut.piece__payload.value = pack(PIECE, piece)
        # An error that is being reported when the visit begins counts; one before it does not.
        dut.failing.value = 1
        await around.cycle(kind)
        dut.failing.value, dut.fresh.value = 0, 1
        await around.cycle(kind)
        dut.fresh.value, dut.failing.value = 0, kind == "doomed"
        await around.cycle(kind)
        dut.failing.value = 0
        assert not around.seen
        # Its `free` may come late.
        dut.piece__valid.value = 1
        for _ in range(200):
            taken, over = await around.cycle(kind)
            if taken:
                break
        assert over, "one piece is the whole FPDU"
        # What does not need the registers of the piece any more does not wait for its FPDU.
        assert ("hand" in around.now) == (kind in AT_ONCE)
        dut.piece__valid.value = 0
        await around.cycle(kind)
        assert around.seen == _expected(kind, piece, last), kind
        if around.request:
            assert around.request["rights"] == RIGHTS.get(kind, Rights.LOCAL_READ)
            assert around.request["stag"] == piece["element_stag"]
            assert around.request["tagged_offset"] == piece["address"]
            assert (around.request["octets"], around.request["pd"], around.request["qp"]) == (
                piece["octets"],
                lookup["pd"],
                message["qp"],
            )
        assert bool(around.change) == (kind in ("local", "refused"))
        if around.change:
            assert around.change["entry"]["stag"] == piece["remote_stag"]
            assert around.change["entry"]["pd"] == lookup["pd"]
        record = around.record
        if record is None:
            continue
        fails = kind in (*CAUSES, "failed", "failed_atomic")
        assert record["failed"] == fails
        if fails:
            assert record["cause"] == CAUSES.get(kind, piece["cause"])
        assert record["job"]["close"] == (kind == "terminate")
        if not fails:
            assert record["asks"] == piece["asks"]
            assert record["ends"] and record["begins_atomic"] == (kind == "begins_atomic")
            assert record["places"] == (message["inline"] or kind in ("send", "response"))


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_pieces_of_an_fpdu_go_one_after_another(dut):
    """Only the last one tells that the FPDU is on its way; an error of one ends the others."""
    rng, around = await _start(dut)
    doomed = 0
    for _ in range(100):
        count, breaks = rng.randint(2, 4), rng.random() < 0.2
        dut.fresh.value = 1
        await around.cycle("send")
        dut.fresh.value = 0
        for number in range(count):
            piece = _piece(rng, "send")
            piece["covers"], piece["message"]["more"] = int(number == count - 1), 0
            around.begin(piece)
            dut.last.value = 1
            dut.piece__payload.value, dut.piece__valid.value = pack(PIECE, piece), 1
            over = taken = False
            while not taken:
                taken, over = await around.cycle("send")
            dut.piece__valid.value = 0
            if doomed and number and breaks:
                assert over and not around.seen, "its own error ends the visit without a word"
                break
            assert over == (number == count - 1)
            assert around.seen == ["ask", "hand", *(["handed"] if over else [])]
            if breaks:
                doomed += 1
                dut.failing.value = 1
                await around.cycle("send")
                dut.failing.value = 0
            else:
                await around.cycle("send")
    assert doomed
