"""A segment is judged as RFC 9293, 3.10.7.4 and RFC 5961 say, and as the reference TCP does."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from stagecoach.gateware.tcp.layouts import LIMITS, PLACE, SEGMENT, Due
from stagecoach.gateware.tcp.segment_verdict import SegmentVerdict
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset
from stagecoach.sim.model.tcp.segment import Flags
from tests.support.verdicts import Verdicts, each_check, shows, simulate
from tests.tcp.receive_reference import SPACE, Reference

WORDS = ("acknowledges", "challenge", "answer", "reset", "lost", "text")
NUMBERS = (1000, 0, 1, SPACE - 1, SPACE - 4, SPACE // 2 - 4)
"""RCV.NXT of the cases: some have their numbers at the ends of all numbers, or of half of them."""

WINDOW = 10
TRUE_ACKS = 100
"""Numbers that a true ACK may have, beside the newest one."""

NONE: frozenset[str] = frozenset()
CHALLENGE, ANSWER, RESET = frozenset({"challenge"}), frozenset({"answer"}), frozenset({"reset"})
COUNTS = frozenset({"acknowledges"})
TEXT = COUNTS | {"text"}
LOST = COUNTS | {"lost"}
ACK, FIN, RST, SYN = Flags.ACK, Flags.FIN | Flags.ACK, Flags.RST, Flags.SYN


@dataclass(frozen=True)
class Case:
    """A segment, and what is said of it.

    at: SEG.SEQ, from RCV.NXT on. says: words of the verdict. data: its first number and the one
    after its last, from RCV.NXT on, where they count. ack: SEG.ACK, from the newest true one on.
    fin: where the FIN of the connection stands after it. place: fields; `fin` from RCV.NXT on.
    """

    at: int
    octets: int
    flags: Flags
    says: frozenset[str]
    data: tuple[int, int] | None = None
    ack: int = 0
    window: int = WINDOW
    fin: int | None = None
    place: dict[str, int] = field(default_factory=dict)
    live: int = 1


RESETS = (  # RFC 5961, 3.2
    Case(0, 0, RST, RESET),
    Case(0, 0, RST, RESET, window=0),
    Case(0, 0, RST | SYN | ACK, RESET, ack=1),
    *(Case(at, 0, RST, CHALLENGE) for at in (1, WINDOW - 1)),
    *(Case(at, 0, RST, NONE) for at in (-1, WINDOW, SPACE // 2)),
    *(Case(at, 0, RST, NONE, window=0) for at in (-1, 1)),
)
SYNS = tuple(  # RFC 5961, 4.2
    Case(at, octets, flags, CHALLENGE, window=window)
    for at in (-1, 0, 5, WINDOW, SPACE // 2)
    for octets in (0, 3)
    for flags in (SYN, SYN | ACK)
    for window in (0, WINDOW)
)
ACCEPTABLE = (  # RFC 9293, Table 6, and MUST-66
    Case(0, 0, ACK, TEXT, data=(0, 0), window=0),
    *(Case(at, 0, ACK, CHALLENGE, window=0) for at in (-1, 1)),
    *(Case(at, 0, ACK, TEXT, data=(at, at)) for at in (0, WINDOW - 1)),
    *(Case(at, 0, ACK, CHALLENGE) for at in (-1, WINDOW)),
    Case(0, 3, ACK, COUNTS | ANSWER, window=0),
    Case(0, 3, ACK, CHALLENGE, window=0, ack=1),
    Case(0, 3, Flags(0), ANSWER, window=0),
    *(Case(at, 3, ACK, ANSWER, window=0) for at in (-3, -1, 1)),
    Case(1, 3, ACK, ANSWER, window=0, ack=1),
    Case(0, 3, ACK, TEXT, data=(0, 3)),
    Case(-3, 3, ACK, ANSWER),
    Case(-3, 4, ACK, TEXT, data=(0, 1)),
    Case(WINDOW - 1, 5, ACK, TEXT, data=(WINDOW - 1, WINDOW)),
    Case(WINDOW, 1, ACK, ANSWER),
    # Neither its first number nor its last one is in the window.
    Case(-1, WINDOW + 2, ACK, ANSWER),
    Case(-1, WINDOW + 1, ACK, TEXT, data=(0, WINDOW)),
    # The FIN is its last number.
    Case(-1, 0, FIN, ANSWER),
    Case(-1, 1, FIN, TEXT, data=(0, 0), fin=0),
)
ACKS = (  # RFC 5961, 5.2
    *(Case(0, 3, ACK, TEXT, data=(0, 3), ack=ack) for ack in (-TRUE_ACKS, -1)),
    *(Case(0, 3, ACK, CHALLENGE, ack=ack) for ack in (1, -TRUE_ACKS - 1, SPACE // 2)),
    Case(0, 3, Flags.PSH, NONE),
    Case(0, 3, Flags.FIN, NONE),
)
FINS = (  # only the first one in the window is the FIN
    Case(5, 4, FIN, TEXT, data=(5, 9), fin=9),
    Case(5, 5, FIN, TEXT, data=(5, WINDOW)),
    Case(0, 0, FIN, TEXT, data=(0, 0), fin=0),
    *(
        Case(at, 5, FIN, TEXT, data=(max(at, 0), 4), fin=4, place={"fin_known": 1, "fin": 4})
        for at in (-1, 2, 6)
    ),
    Case(0, 3, ACK, COUNTS, place={"fin_taken": 1, "fin_known": 1, "fin": -1}, fin=-1),
)
DISCARDED = (  # RFC 9293, SHLD-3
    *(Case(at, 4, ACK, LOST, place={"discards": 1}) for at in (-3, 0, 5)),
    Case(0, 0, ACK, TEXT, data=(0, 0), place={"discards": 1}),
    Case(-1, 1, FIN, TEXT, data=(0, 0), fin=0, place={"discards": 1}),
    Case(0, 4, ACK, CHALLENGE, ack=1, place={"discards": 1}),
    Case(0, 4, ACK, COUNTS, place={"discards": 1, "fin_taken": 1}),
)
NOT_LIVE = (
    *(Case(0, 3, flags, NONE, live=0) for flags in (ACK, FIN, RST, SYN)),
    Case(0, 3, FIN, NONE, live=0, fin=5, place={"fin_known": 1, "fin": 5}),
)


async def judge(
    dut: Any, segment: dict[str, int], place: dict[str, int], limits: dict[str, int], live: int = 1
) -> dict[str, int]:
    """The verdict, each part of it in the first cycle in which it is good, and still after it."""
    rng = seeded_random()
    dut.segment.value = pack(SEGMENT, segment)
    for name, layout in (("place", PLACE), ("limits", LIMITS)):
        getattr(dut, name).value = rng.getrandbits(layout.size)
    dut.live.value = 1 - live
    await ClockCycles(dut.clk, 2)
    dut.place.value = pack(PLACE, place)
    dut.limits.value = pack(LIMITS, limits)
    dut.live.value = live
    await ClockCycles(dut.clk, 2)
    found: dict[str, int] = {}
    for names in (("first", "end"), WORDS, ("fin", "fin_known")):
        await ClockCycles(dut.clk, 1)
        found |= {name: int(getattr(dut, name).value) for name in names}
    await ClockCycles(dut.clk, 2)
    assert {name: int(getattr(dut, name).value) for name in found} == found
    return found


def said(found: dict[str, int]) -> set[str]:
    """The words of a verdict."""
    return {word for word in WORDS if found[word]}


async def check_cases(dut: Any, cases: tuple[Case, ...]) -> None:
    rng = seeded_random()
    await start_clock_and_reset(dut)
    for following in NUMBERS:
        newest = rng.choice([rng.getrandbits(32), *NUMBERS])
        limits = {"oldest": (newest - TRUE_ACKS) % SPACE, "highest": newest}
        for case in cases:
            segment = {
                "sequence": (following + case.at) % SPACE,
                "payload": case.octets,
                "acknowledgment": (newest + case.ack) % SPACE,
                "flags": int(case.flags),
            }
            place = {"next": following, "edge": (following + case.window) % SPACE, **case.place}
            place["fin"] = (following + case.place.get("fin", 0)) % SPACE
            found = await judge(dut, segment, place, limits, case.live)
            assert said(found) == case.says, case
            if case.data is not None:
                expected = tuple((following + number) % SPACE for number in case.data)
                assert (found["first"], found["end"]) == expected, case
            known = case.fin is not None or bool(case.place.get("fin_known"))
            assert found["fin_known"] == known, case
            if case.fin is not None:
                assert found["fin"] == (following + case.fin) % SPACE, case


@shows("TCPSEC-3.2-01", "TCPSEC-3.2-02", "TCPSEC-3.2-03")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_reset_needs_the_exact_number(dut: Any) -> None:
    await check_cases(dut, RESETS)


@shows("TCPSEC-4.2-01")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_syn_is_challenged_wherever_it_is(dut: Any) -> None:
    await check_cases(dut, SYNS)


@shows("TCP-MUST-66")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_segment_is_acceptable_with_a_part_in_the_window(dut: Any) -> None:
    await check_cases(dut, ACCEPTABLE)


@shows("TCPSEC-5.2-01", "TCP-MAY-12")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_ack_of_no_true_peer_is_challenged(dut: Any) -> None:
    await check_cases(dut, ACKS)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_first_fin_in_the_window_is_the_fin(dut: Any) -> None:
    await check_cases(dut, FINS)


@shows("TCP-SHLD-3")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_data_that_nobody_will_read_is_lost(dut: Any) -> None:
    await check_cases(dut, DISCARDED)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_nothing_is_said_without_a_segment(dut: Any) -> None:
    await check_cases(dut, NOT_LIVE)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_segments_are_judged_as_by_the_reference(dut: Any) -> None:
    """A few segments of each of many connections, at windows that may be zero."""
    rng = seeded_random()
    await start_clock_and_reset(dut)
    seen: Counter[str] = Counter()
    for _ in range(60):
        following = rng.choice([rng.getrandbits(32), SPACE - 300, SPACE // 2 - 300, 0])
        known = Reference(
            rng,
            ring=1 << 17,
            mss=1460,
            following=following,
            window=rng.choice([0, 1, 1500, 65_535]),
            shift=0,
            unacknowledged=rng.choice([rng.getrandbits(32), SPACE - 5]),
        )
        receiver = known.receiver
        known.record.discarding = rng.random() < 0.1
        for _ in range(40):
            fin_at = receiver._fin_at
            segment, _ = known.segment()
            place = {
                "next": receiver.next_sequence,
                "edge": known.edge,
                "fin": known.number(fin_at or 0),
                "fin_known": int(fin_at is not None),
                "fin_taken": int(receiver.fin_taken),
                "discards": int(known.record.discarding),
            }
            given = {
                "sequence": segment.sequence,
                "payload": len(segment.payload),
                "acknowledgment": segment.acknowledgment,
                "flags": int(segment.flags),
            }
            limits = known.limits
            found = await judge(dut, given, place, limits)
            done = known.arrives(segment)
            event = done["event"] or {}
            for word in ("acknowledges", "challenge", "reset", "lost"):
                assert found[word] == event.get(word, 0), (word, segment)
            due = done["note"]["due"] if done["note"] else Due.NONE.value
            assert found["answer"] == (due == Due.NOW.value and not found["text"]), segment
            if done["stored"]:
                assert found["text"]
                stored = tuple(known.number(number) for number in done["stored"])
                assert (found["first"], found["end"]) == stored
            assert found["fin_known"] == (receiver._fin_at is not None)
            if receiver._fin_at is not None:
                assert found["fin"] == known.number(receiver._fin_at)
            seen.update(said(found))
            seen["stored"] += bool(done["stored"])
            if event.get("reset") or event.get("lost"):
                break
    assert all(seen[word] > 2 for word in (*WORDS, "stored")), seen


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, SegmentVerdict(), __name__, "always", ("always",))


@each_check(globals())
def test_segment_verdict(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
