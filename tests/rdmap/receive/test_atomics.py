"""The RDMAP receiver hands over good Atomic Requests, places good Atomic Responses, and no others.

RFC 7306, 5.
"""

from collections.abc import Callable
from typing import Any

import cocotb
import pytest

from stagecoach.gateware.layouts import DeliveryKind, StagStatus
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.model.atomics import AtomicOperation
from stagecoach.sim.model.ddp import UNTAGGED_HEADER_OCTETS
from tests.rdmap.receive.bench import Bench, start
from tests.rdmap.receive.model import ADDRESS_MASK, CONFIG, AtomicSink, stag_with
from tests.rdmap.receive.segments import (
    LONGEST_PAYLOAD,
    atomic_request,
    atomic_response,
    elements,
    opcode,
    read_request,
    response,
    send,
    write,
)
from tests.rdmap.receive.wrong_segments import (
    Wrong,
    WrongSegments,
    each_kind,
    each_stops_its_qp_only,
)
from tests.support.verdicts import Verdicts, each_check, shows

REQUEST, RESPONSE = 10, 11
"""The opcodes."""
QUEUES = {REQUEST: 1, RESPONSE: 3}
OPERANDS = ("data", "mask", "compare", "compare_mask")
"""In the order of the header (RFC 7306, Figure 4)."""


def some_sink(rng: Any, status: StagStatus = StagStatus.OK) -> AtomicSink:
    return AtomicSink(stag_with(rng, status), rng.getrandbits(64), rng.getrandbits(16))


def happens(bench: Bench) -> list[tuple[Any, ...]]:
    """What the model wants but lookups and first segments."""
    return [event for event in bench.model.events if event[0] not in ("stag", "first")]


@shows("EXT-5.1.1-02", "EXT-5.2.1-01", "EXT-5.2.1-02", "EXT-5.2.1-03", "EXT-5.2.1-07")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_good_request_is_handed_over_with_all_its_fields(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    await bench.connect(1)
    # No atomic takes a receive entry.
    bench.post(1, elements(rng, 100))
    operations = [rng.choice([*AtomicOperation, None]) for _ in range(80)]
    for msn, operation in enumerate([*AtomicOperation, *operations], 1):
        if operation is None:
            ulpdu = read_request(rng, msn, rng.choice([0, None]))
        else:
            ulpdu = atomic_request(rng, msn, operation)
        bench.send(1, ulpdu)
        (push, _, item), _, (deliver, delivery) = happens(bench)
        assert (push, item["atomic"]) == ("push", operation is not None)
        assert (deliver, delivery["kind"]) == ("deliver", DeliveryKind.REQUEST.value)
        if operation is not None:
            numbers = [
                item["of"]["identifier"],
                item["of"]["stag"],
                item["of"]["tagged_offset"],
                *(item["of"]["operands"][name] for name in OPERANDS),
            ]
            octets = b"".join(
                number.to_bytes(size, "big")
                for number, size in zip(numbers, (4, 4, 8, 8, 8, 8, 8), strict=True)
            )
            assert ulpdu[UNTAGGED_HEADER_OCTETS + 4 :] == octets
            assert item["of"]["operands"]["operation"] == operation
        if rng.random() < 0.3:
            bench.send(1, write(rng, rng.choice([0, 8])))
        await bench.settle()
        bench.answer_reads(1)
    assert len(bench.rings[1].entries) == 1


@shows("EXT-5.2-01", "EXT-5.2.1-11", "EXT-5.2.1-15")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_requests_are_handed_over_in_order_and_take_no_receive(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    await bench.connect(1)
    bench.post(1, elements(rng, 100))
    kinds = [1, 0, 1, 1]
    requests = [
        (atomic_request if atomic else read_request)(rng, msn)
        for msn, atomic in enumerate(kinds, 1)
    ]
    for request in requests:
        bench.send(1, request)
    log = await bench.settle()
    pushed = [event[2] for event in log if event[0] == "push"]
    assert [item["atomic"] for item in pushed] == kinds
    for item, request in zip(pushed, requests, strict=True):
        if item["atomic"]:
            identifier = request[UNTAGGED_HEADER_OCTETS + 4 :][:4]
            assert item["of"]["identifier"].to_bytes(4, "big") == identifier
        else:
            assert item["of"]["sink_stag"].to_bytes(4, "big") == request[18:22]
    delivered = [event[1]["kind"] for event in log if event[0] == "deliver"]
    assert delivered == [DeliveryKind.REQUEST.value] * len(kinds)
    assert len(bench.rings[1].entries) == 1


@shows("EXT-5.2.2-01", "EXT-5.2.2-07")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_the_original_value_is_placed_as_a_number_of_the_host(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    await bench.connect(1)
    bench.post(1, elements(rng, 100))
    for _ in range(80):
        sink = some_sink(rng)
        request = bench.expect_atomic(1, sink)
        bench.send(1, atomic_response(rng, request.identifier))
        (place, placement), (deliver, delivery), pop = happens(bench)
        assert (place, deliver, pop) == ("place", "deliver", ("pop_read", 1))
        assert placement["address"] == sink.tagged_offset ^ ADDRESS_MASK
        assert (placement["octets"], placement["reversed"]) == (8, 1)
        first = placement["store_address"] * 8 + placement["store_octet"]
        # After the length of the ULPDU, the DDP header and the identifier.
        assert first % 8 == (2 + UNTAGGED_HEADER_OCTETS + 4) % 8
        assert (delivery["kind"], delivery["length"]) == (DeliveryKind.READ.value, 8)
        await bench.settle()
    assert len(bench.rings[1].entries) == 1


@shows("RDMAP-5.5-07")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_responses_to_reads_and_atomics_come_in_the_order_of_the_requests(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    await bench.connect(1)
    for _ in range(30):
        answers = []
        for _ in range(rng.randrange(1, CONFIG.read_queue_depth + 1)):
            if rng.random() < 0.5:
                request = bench.expect_atomic(1, some_sink(rng))
                answers.append(atomic_response(rng, request.identifier))
                continue
            stag, to, length = stag_with(rng), rng.getrandbits(64), rng.choice([0, 8, 9, 30])
            bench.expect_read(1, stag, to, length)
            if length > 8:
                answers.append(response(stag, to, 8, False))
                to, length = to + 8, length - 8
            answers.append(response(stag, to, length, True))
        for answer in answers:
            bench.send(1, answer)
        assert not bench.model.qps[1].stopped
        await bench.settle()
        assert not bench.reads[1]


def answering(make: Callable[[Any, int], bytes]) -> Wrong:
    """A response to the second atomic of the QP; `make` has its identifier."""

    def segment(bench: Bench, rng: Any) -> bytes:
        first = bench.expect_atomic(1, some_sink(rng))
        bench.send(1, atomic_response(rng, first.identifier))
        return make(rng, bench.expect_atomic(1, some_sink(rng)).identifier)

    return segment


def behind_a_read(bench: Bench, rng: Any) -> bytes:
    """An Atomic Response, right but for the RDMA Read that is older."""
    bench.expect_read(1, stag_with(rng), rng.getrandbits(64), rng.choice([0, 8]))
    return atomic_response(rng, bench.expect_atomic(1, some_sink(rng)).identifier)


def inside_a_read(bench: Bench, rng: Any) -> bytes:
    """The same when a part of the RDMA Read was answered."""
    stag, to = stag_with(rng), rng.getrandbits(64)
    bench.expect_read(1, stag, to, 9)
    request = bench.expect_atomic(1, some_sink(rng))
    bench.send(1, response(stag, to, 1, False))
    return atomic_response(rng, request.identifier)


def behind_an_atomic(octets: int) -> Wrong:
    """A Read Response, right but for the atomic that is older, whose sink it names."""

    def segment(bench: Bench, rng: Any) -> bytes:
        sink = AtomicSink(stag_with(rng), rng.getrandbits(64), octets)
        bench.expect_atomic(1, sink)
        bench.expect_read(1, sink.stag, sink.tagged_offset, octets)
        return response(sink.stag, sink.tagged_offset, octets, True)

    return segment


def answered_before(bench: Bench, rng: Any) -> bytes:
    """A second response to the only atomic."""
    request = bench.expect_atomic(1, some_sink(rng))
    bench.send(1, atomic_response(rng, request.identifier))
    return atomic_response(rng, request.identifier + 1)


def refused_sink(status: StagStatus, wrong: int = 0) -> Wrong:
    """The bits `wrong` of the identifier are wrong."""

    def segment(bench: Bench, rng: Any) -> bytes:
        msn = bench.expect_atomic(1, some_sink(rng, status)).identifier
        return atomic_response(rng, msn ^ wrong, msn=msn)

    return segment


KINDS = (
    WrongSegments(
        "DDP version",
        "EXT-8.2-01",
        [
            (
                Cause.UNTAGGED_DDP_VERSION,
                lambda bench, rng, n=n, v=v: send(1, 0, 52, version=v, **n),
            )
            for n in (opcode(n, qn=qn) for n, qn in QUEUES.items())
            for v in (0, 2, 3)
        ],
    ),
    WrongSegments(
        "RDMAP version",
        "EXT-8.2-03",
        [
            (
                Cause.RDMAP_VERSION,
                lambda bench, rng, n=n, v=v: send(1, 0, 52, qn=QUEUES[n], rsvd_ulp=v << 6 | n),
            )
            for n in (REQUEST, RESPONSE)
            for v in (0, 2, 3)
        ],
    ),
    WrongSegments(
        "request in another queue",
        "EXT-5.2.1-13 EXT7306-5.2-01 EXT-5.2.1-12",
        [
            *(
                (Cause.UNEXPECTED_OPCODE, lambda bench, rng, qn=qn: atomic_request(rng, 1, qn=qn))
                for qn in (0, 2, 3)
            ),
            (Cause.UNTAGGED_QN, lambda bench, rng: atomic_request(rng, 1, qn=4)),
        ],
    ),
    WrongSegments(
        "response in another queue",
        "EXT-5.2.2-04 EXT7306-5-05 EXT-5.2.2-08",
        [
            *(
                (
                    Cause.UNEXPECTED_OPCODE,
                    answering(lambda rng, n, qn=qn: atomic_response(rng, n, qn=qn)),
                )
                for qn in (0, 1, 2)
            ),
            (Cause.UNTAGGED_QN, answering(lambda rng, n: atomic_response(rng, n, qn=2**31 + 3))),
        ],
    ),
    WrongSegments(
        "tagged request",
        "EXT-5.2.1-08 EXT-5.2.1-12",
        [(Cause.UNEXPECTED_OPCODE, lambda bench, rng: write(rng, 52, **opcode(REQUEST)))],
    ),
    WrongSegments(
        "tagged response",
        "EXT-5.2.2-03 EXT-5.2.2-08",
        [(Cause.UNEXPECTED_OPCODE, lambda bench, rng: write(rng, 52, **opcode(RESPONSE)))],
    ),
    # Atomic Requests
    WrongSegments(
        "MSN or MO of a request",
        "EXT-8.2-01 EXT-5.2-01 EXT-5.2.1-12",
        [
            (Cause.UNTAGGED_MSN, lambda bench, rng: atomic_request(rng, 2)),
            (Cause.UNTAGGED_MSN, lambda bench, rng: atomic_request(rng, 0, misaligned=1)),
            (Cause.UNTAGGED_MO, lambda bench, rng: atomic_request(rng, 1, mo=52)),
            (Cause.UNTAGGED_MO, lambda bench, rng: atomic_request(rng, 1, mo=2**31)),
        ],
    ),
    WrongSegments(
        "request that is not 52 octets",
        "EXT-5.2.1-01 EXT-5.2.1-12",
        [
            (Cause.ATOMIC_REQUEST_TOO_LONG, lambda bench, rng: atomic_request(rng, 1) + b"\0"),
            (Cause.ATOMIC_REQUEST_TOO_LONG, lambda bench, rng: atomic_request(rng, 1, 15) + b"\0"),
            (
                Cause.ATOMIC_REQUEST_TOO_LONG,
                lambda bench, rng: atomic_request(rng, 1).ljust(18 + LONGEST_PAYLOAD),
            ),
            (Cause.ATOMIC_REQUEST_TOO_SHORT, lambda bench, rng: atomic_request(rng, 1)[:-1]),
            (Cause.ATOMIC_REQUEST_TOO_SHORT, lambda bench, rng: atomic_request(rng, 1)[:18]),
            (Cause.ATOMIC_REQUEST_TOO_SHORT, lambda bench, rng: atomic_request(rng, 1, last=False)),
        ],
    ),
    WrongSegments(
        "unknown operation",
        "EXT7306-5.2.1-02 EXT-5.2.1-07 EXT-5.2.1-12",
        [
            (
                Cause.ATOMIC_OPERATION_UNSUPPORTED,
                lambda bench, rng, n=n, status=status: atomic_request(rng, 1, n, status),
            )
            for n in range(3, 16)
            for status in (StagStatus.OK, StagStatus.INVALID)
        ],
    ),
    *(
        WrongSegments(
            f"target {what}",
            "EXT-8.2-05 EXT-5.2.1-12",
            [
                (
                    cause,
                    lambda bench, rng, status=status, low=low: atomic_request(
                        rng, 1, 0, status, low
                    ),
                )
                for low in (0, 1)
            ],
        )
        for what, status, cause in (
            ("of no STag", StagStatus.INVALID, Cause.ATOMIC_STAG_INVALID),
            ("of others", StagStatus.NOT_ASSOCIATED, Cause.ATOMIC_STAG_NOT_ASSOCIATED),
            ("without the right", StagStatus.NOT_PERMITTED, Cause.ATOMIC_NOT_PERMITTED),
            ("that wraps", StagStatus.WRAP, Cause.ATOMIC_TO_WRAP),
            ("out of bounds", StagStatus.BOUNDS, Cause.ATOMIC_BOUNDS),
        )
    ),
    *(
        # The address counts: some of these TOs are multiples of 8.
        WrongSegments(
            f"misaligned {operation.name}",
            f"{rows} EXT-8.2-04 EXT7306-8.2-01 EXT7306-5.2.1-01",
            [
                (
                    Cause.ATOMIC_MISALIGNED,
                    lambda bench, rng, n=operation, low=low: atomic_request(
                        rng, 1, n, misaligned=low
                    ),
                )
                for low in range(1, 8)
            ],
        )
        for operation, rows in {
            AtomicOperation.FETCH_ADD: "EXT7306-5.1.1-01 EXT-5.1.1-03",
            AtomicOperation.SWAP: "",
            AtomicOperation.CMP_SWAP: "EXT7306-5.1.2-02 EXT-5.1.3-02",
        }.items()
    ),
    # Atomic Responses
    WrongSegments(
        "response that nobody asked for",
        "EXT-5.2.2-08",
        [
            (Cause.UNSOLICITED_ATOMIC_RESPONSE, lambda bench, rng: atomic_response(rng, 1)),
            (Cause.UNSOLICITED_ATOMIC_RESPONSE, answered_before),
        ],
    ),
    WrongSegments(
        "response out of order",
        "EXT-5.2.2-08",
        [
            (Cause.UNSOLICITED_ATOMIC_RESPONSE, behind_a_read),
            (Cause.UNSOLICITED_ATOMIC_RESPONSE, inside_a_read),
            *((Cause.UNSOLICITED_READ_RESPONSE, behind_an_atomic(octets)) for octets in (0, 8)),
        ],
    ),
    WrongSegments(
        "MSN or MO of a response",
        "EXT-8.2-01 EXT7306-5-05 EXT-5.2.2-06 EXT-5.2.2-08",
        [
            (Cause.UNTAGGED_MSN, answering(lambda rng, n: atomic_response(rng, n, msn=n + 1))),
            (Cause.UNTAGGED_MSN, answering(lambda rng, n: atomic_response(rng, n, msn=n - 1))),
            (
                Cause.UNTAGGED_MSN,
                answering(lambda rng, n: atomic_response(rng, n, msn=n ^ 1 << 31)),
            ),
            (Cause.UNTAGGED_MO, answering(lambda rng, n: atomic_response(rng, n, mo=12))),
            (Cause.UNTAGGED_MO, answering(lambda rng, n: atomic_response(rng, n, mo=2**31))),
        ],
    ),
    WrongSegments(
        "response that is not 12 octets",
        "EXT-5.2.2-01 EXT-5.2.2-08",
        [
            (
                Cause.ATOMIC_RESPONSE_TOO_LONG,
                answering(lambda rng, n: atomic_response(rng, n) + b"\0"),
            ),
            (
                Cause.ATOMIC_RESPONSE_TOO_LONG,
                answering(lambda rng, n: atomic_response(rng, n, last=False) + b"\0"),
            ),
            (
                Cause.ATOMIC_RESPONSE_TOO_SHORT,
                answering(lambda rng, n: atomic_response(rng, n)[:-1]),
            ),
            (
                Cause.ATOMIC_RESPONSE_TOO_SHORT,
                answering(lambda rng, n: atomic_response(rng, n)[:18]),
            ),
            (
                Cause.ATOMIC_RESPONSE_TOO_SHORT,
                answering(lambda rng, n: atomic_response(rng, n, last=False)),
            ),
        ],
    ),
    WrongSegments(
        "response to another request",
        "EXT-5.2.2-06 EXT-5.2.2-08",
        [
            *(
                (
                    Cause.ATOMIC_RESPONSE_IDENTIFIER,
                    answering(lambda rng, n, wrong=wrong: atomic_response(rng, n ^ wrong, msn=n)),
                )
                for wrong in (1, 2, 1 << 31)
            ),
            # A wrong response is told before a refused sink.
            (Cause.ATOMIC_RESPONSE_IDENTIFIER, refused_sink(StagStatus.INVALID, wrong=1)),
        ],
    ),
    WrongSegments(
        "refused sink",
        "",
        [
            (Cause.LOCAL_SEND_PROTECTION, refused_sink(status))
            for status in StagStatus
            if status is not StagStatus.OK
        ],
    ),
)


@cocotb.test(timeout_time=2, timeout_unit="ms")
@each_kind(KINDS)
async def check_what_is_wrong_stops_its_qp_only(dut: Any, wrong: WrongSegments) -> None:
    bench = await start(dut)
    await each_stops_its_qp_only(bench, wrong.segments)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_refused_sink_is_told_with_its_send_entry(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    for index in (0, 1, 0x1234, 0xFFFF):
        await bench.connect(1)
        sink = AtomicSink(stag_with(rng, StagStatus.BOUNDS), rng.getrandbits(64), index)
        request = bench.expect_atomic(1, sink)
        bench.send(1, atomic_response(rng, request.identifier))
        (name, error), (release, _) = happens(bench)
        assert (name, error["cause"]) == ("error", Cause.LOCAL_SEND_PROTECTION)
        assert (error["index"], release) == (index, "release")
        await bench.settle()


@shows("EXT-5.2.1-09", "EXT-5.2.2-05", "EXT7306-5.2.2-01", "EXT-5.2-01")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_ird_counts_reads_and_atomics_together(dut: Any) -> None:
    bench = await start(dut)
    rng = bench.rng
    for ird in (0, 1, 2, 3, CONFIG.read_queue_depth):
        for too_many in (False, True):
            await bench.connect(1, ird=ird)
            bench.model.causes.clear()
            for number in range(ird + 1):
                assert not bench.model.qps[1].stopped
                is_atomic = too_many if number == ird else rng.random() < 0.5
                make = atomic_request if is_atomic else read_request
                bench.send(1, make(rng, number + 1, 0))
            await bench.settle()
            assert bench.model.causes == {Cause.TOO_MANY_READ_REQUESTS}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_swap_is_unsupported_with_the_strict_setting(dut: Any) -> None:
    bench = await start(dut, strict=True)
    rng = bench.rng
    await bench.connect(1)
    for msn, operation in enumerate((0, 2, 2, 0), 1):
        bench.send(1, atomic_request(rng, msn, operation))
        await bench.settle()
        bench.answer_reads(1)
    assert not bench.model.qps[1].stopped
    wrong: list[tuple[Cause, Wrong]] = [
        (
            Cause.ATOMIC_OPERATION_UNSUPPORTED,
            lambda bench, rng, n=n: atomic_request(rng, 1, n),
        )
        for n in (1, *range(3, 16))
    ]
    await each_stops_its_qp_only(bench, wrong)


# The first test of each pattern waits for the compilation of the receiver and for the simulation.
pytestmark = pytest.mark.timeout(1200)


@each_check(globals())
def test_receiver(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
