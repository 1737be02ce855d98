"""Random messages leave the transmitter as RFC 5040, RFC 5041 and RFC 7306 lay them out.

One simulation of random work requests and inbound requests for each pattern of back-pressure, held
to the model (`test_random_messages`); then a test for each statement, which reads the octets that
left and compares them with the octets and numbers that the RFC prints.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from stagecoach.gateware.rdmap.transmit.transmitter import Transmitter
from stagecoach.hw.interface.queue_entries import SendOpcode
from stagecoach.sim.cosim.runner import CocotbFailure
from tests.rdmap.transmit.test_transmitter import CONFIG
from tests.rdmap.transmit.transcript import Message, Segment, Stream, Transcript, read_transcript
from tests.support.runner import run_cocotb

# The first test of each pattern also waits for the compilation of the transmitter and for the
# simulation: on a machine with much else to do, longer than one test may take.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

# RFC 5040, Figure 4; RFC 7306, Figure 2: opcode, T, QN. Tagged messages have no queue.
WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INV, SEND_SE, SEND_SE_INV = range(7)
IMMEDIATE, IMMEDIATE_SE, ATOMIC_REQUEST, ATOMIC_RESPONSE = range(8, 12)
TAGGED = (WRITE, READ_RESPONSE)
SENDS = (SEND, SEND_INV, SEND_SE, SEND_SE_INV)
IMMEDIATES = (IMMEDIATE, IMMEDIATE_SE)
OPCODES = (*TAGGED, READ_REQUEST, *SENDS, *IMMEDIATES, ATOMIC_REQUEST, ATOMIC_RESPONSE)
UNTAGGED = tuple(opcode for opcode in OPCODES if opcode not in TAGGED)
QUEUES = {READ_REQUEST: 1, ATOMIC_REQUEST: 1, ATOMIC_RESPONSE: 3} | dict.fromkeys(
    (*SENDS, *IMMEDIATES), 0
)
ASKED = {
    SendOpcode.RDMA_WRITE: WRITE,
    SendOpcode.RDMA_READ: READ_REQUEST,
    SendOpcode.SEND: SEND,
    SendOpcode.SEND_WITH_INVALIDATE: SEND_INV,
    SendOpcode.SEND_WITH_SE: SEND_SE,
    SendOpcode.SEND_WITH_SE_AND_INVALIDATE: SEND_SE_INV,
    SendOpcode.IMMEDIATE: IMMEDIATE,
    SendOpcode.IMMEDIATE_WITH_SE: IMMEDIATE_SE,
    SendOpcode.ATOMIC: ATOMIC_REQUEST,
}
"""The message of each work request that sends one."""

FETCH_ADD, SWAP, CMP_SWAP = range(3)
"""AOpCodes (RFC 7306, Figure 5; Swap: draft-ietf-storm-rdmap-ext-00, 5.1.2)."""


def number(octets: bytes) -> int:
    """Big endian, as all fields (RFC 5041, 4)."""
    return int.from_bytes(octets, "big")


@pytest.fixture(scope="module", params=["always", "bursty"])
def transcript(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a simulation has left, whether or not a check of its own failed."""
    path = tmp_path_factory.mktemp("transcript") / "events.jsonl"
    failure = ""
    try:
        run_cocotb(
            Transmitter(CONFIG),
            "tests.rdmap.transmit.test_transmitter",
            test_filter="check_random",
            parameters={"PATTERN": request.param, "TRANSCRIPT": str(path)},
            name=f"transcript-{request.param}",
        )
    except CocotbFailure as error:
        failure = str(error)
    return read_transcript(path, failure)


def asked(stream: Stream, *opcodes: int) -> list[dict[str, Any]]:
    """Work requests of one QP that send such a message."""
    return [post for post in stream.posts if ASKED.get(post["opcode"]) in opcodes]


def sent(stream: Stream, *opcodes: int) -> list[Message]:
    return [message for message in stream.messages if message.opcode in opcodes]


def tagged_target(message: Message) -> tuple[int, int]:
    """STag and TO that the work request names, or the Read Request that is answered."""
    assert message.origin is not None
    names = ("remote_stag", "remote_tagged_offset")
    if message.opcode == READ_RESPONSE:
        names = ("sink_stag", "sink_tagged_offset")
    return tuple(message.origin[name] for name in names)


def stag_and_to(segment: Segment) -> tuple[int, int]:
    """RFC 5041, 4.2: STag in octets 2 to 5, TO in octets 6 to 13."""
    return number(segment.header[2:6]), number(segment.header[6:14])


def qn_msn_mo(segment: Segment) -> tuple[int, int, int]:
    """RFC 5041, 4.3: QN in octets 6 to 9, MSN in 10 to 13, MO in 14 to 17."""
    qn, msn, mo = (number(segment.header[start : start + 4]) for start in (6, 10, 14))
    return qn, msn, mo


def length_of(message: Message) -> int:
    """Octets of ULP payload that were asked for."""
    assert message.origin is not None
    return int(message.origin["length"])


def test_random_messages(transcript: Transcript) -> None:
    """The whole, octet by octet, against the reference model."""
    assert not transcript.failure, transcript.failure
    seen = {message.opcode for _, message in transcript.messages()}
    assert seen == set(OPCODES)


def each(values: dict[int, str]) -> Any:
    """Parameters for opcodes, each with the rows of the requirement list that it shows."""
    return pytest.mark.parametrize(
        "opcode",
        [
            pytest.param(opcode, marks=pytest.mark.requirement(*ids.split()) if ids else ())
            for opcode, ids in values.items()
        ],
    )


# RFC 5040, 4.1 and RFC 7306, 4: the control octet


@pytest.mark.requirement("RDMAP-4.1-05", "RDMAP-6.1-01", "EXT-4.1-02")
@pytest.mark.parametrize("opcode", OPCODES)
def test_opcode_is_that_of_figure_4(opcode: int, transcript: Transcript) -> None:
    for _, message in transcript.messages(opcode):
        assert message.origin is not None, "nothing asked for it"
        if opcode in (READ_RESPONSE, ATOMIC_RESPONSE):
            assert message.origin["atomic"] == (opcode == ATOMIC_RESPONSE)
        else:
            assert ASKED[message.origin["opcode"]] == opcode
        for segment in message.segments:
            assert segment.header[1] & 0x0F == opcode


@pytest.mark.requirement("RDMAP-4.1-07", "EXT-4.1-01", "MPA-3-09", "MPA-C.1-01")
def test_rdmap_version_is_1(transcript: Transcript) -> None:
    for segment in transcript.segments():
        assert segment.header[1] & 0xC0 == 0x40, segment


@pytest.mark.requirement("RDMAP-4.1-08", "EXT-4.1-04")
def test_reserved_bits_of_rdmap_are_zero(transcript: Transcript) -> None:
    for segment in transcript.segments():
        assert segment.header[1] & 0x30 == 0, segment


@pytest.mark.requirement("RDMAP-4.1-03", "RDMAP-5.3-12")
def test_send_with_invalidate_has_its_stag(transcript: Transcript) -> None:
    for _, message in transcript.messages(SEND_INV, SEND_SE_INV):
        assert message.origin is not None
        for segment in message.segments:
            assert segment.header[2:6] == message.origin["remote_stag"].to_bytes(4, "big")


@pytest.mark.requirement("RDMAP-4.1-10", "EXT-4.1-04")
def test_invalidate_stag_of_other_messages_is_zero(transcript: Transcript) -> None:
    others = [opcode for opcode in UNTAGGED if opcode not in (SEND_INV, SEND_SE_INV)]
    for segment in transcript.segments(*others):
        assert segment.header[2:6] == bytes(4), segment


# RFC 5041, 4: DDP headers


@each(
    {
        WRITE: "RDMAP-5.1-01",
        READ_REQUEST: "RDMAP-5.2.1-01",
        READ_RESPONSE: "RDMAP-5.2.2-01",
        **dict.fromkeys(SENDS, "RDMAP-5.3-01"),
        **dict.fromkeys(IMMEDIATES, "EXT-6.3-01"),
        ATOMIC_REQUEST: "EXT-5.2.1-08",
        ATOMIC_RESPONSE: "EXT-5.2.2-03",
    }
)
@pytest.mark.requirement("RDMAP-4.1-04", "EXT-4.1-02")
def test_tagged_flag(opcode: int, transcript: Transcript) -> None:
    for segment in transcript.segments(opcode):
        assert segment.header[0] >> 7 == (opcode in TAGGED), segment


@pytest.mark.requirement("DDP-4.1-09", "RDMAP-3.1-01", "MPA-3-09", "MPA-C.1-01")
def test_ddp_version_is_1(transcript: Transcript) -> None:
    for segment in transcript.segments():
        assert segment.header[0] & 0x03 == 1, segment


@pytest.mark.requirement("DDP-4.1-07")
def test_reserved_bits_of_ddp_are_zero(transcript: Transcript) -> None:
    for segment in transcript.segments():
        assert segment.header[0] & 0x3C == 0, segment


@pytest.mark.requirement("DDP-4.1-03", "DDP-4.1-04", "RDMAP-3.1-03")
def test_last_flag_is_that_of_the_segment_with_the_last_octet(transcript: Transcript) -> None:
    for stream, message in transcript.messages(*TAGGED, *SENDS):
        assert sum(segment.payload for segment in message.segments) == length_of(message)
        flags = [segment.header[0] >> 6 & 1 for segment in message.segments]
        assert flags == [0] * (len(flags) - 1) + [1]
        assert not stream.unfinished


@pytest.mark.requirement("DDP-4.4-01")
def test_every_segment_has_its_whole_header(transcript: Transcript) -> None:
    for segment in transcript.segments():
        tagged = segment.header[0] & 0x80
        assert len(segment.header) == (14 if tagged else 18)
        assert segment.ulpdu_length >= len(segment.header)


@pytest.mark.requirement("DDP-4.2-01", "DDP-4.2-06", "RDMAP-3.1-04", "RDMAP-4.1-06")
def test_tagged_header_has_stag_and_offset_of_the_work_request(transcript: Transcript) -> None:
    for _, message in transcript.messages(WRITE):
        assert stag_and_to(message.first) == tagged_target(message)


@pytest.mark.requirement("RDMAP-4.4-02")
def test_read_response_begins_at_the_sink_of_its_request(transcript: Transcript) -> None:
    for _, message in transcript.messages(READ_RESPONSE):
        assert stag_and_to(message.first) == tagged_target(message)


@each({WRITE: "DDP-4.2-08", READ_RESPONSE: "DDP-4.2-08 RDMAP-5.2.2-08"})
def test_stag_is_the_same_in_all_segments(opcode: int, transcript: Transcript) -> None:
    for _, message in transcript.messages(opcode):
        assert len({segment.header[2:6] for segment in message.segments}) == 1


@pytest.mark.requirement("DDP-4.2-02", "DDP-4.2-04", "RDMAP-3.1-04")
def test_rsvdulp_of_tagged_messages(transcript: Transcript) -> None:
    for segment in transcript.segments(WRITE):
        assert segment.header[1] == 0x40
    for segment in transcript.segments(READ_RESPONSE):
        assert segment.header[1] == 0x42


@pytest.mark.requirement("DDP-4.3-02", "DDP-4.3-04", "RDMAP-3.1-04")
def test_rsvdulp_of_untagged_messages(transcript: Transcript) -> None:
    for _, message in transcript.messages(*UNTAGGED):
        assert message.origin is not None
        expected = 0x40 | message.opcode
        invalidates = message.opcode in (SEND_INV, SEND_SE_INV)
        stag = message.origin["remote_stag"] if invalidates else 0
        for segment in message.segments:
            assert segment.header[1:6] == bytes([expected]) + stag.to_bytes(4, "big")


@pytest.mark.requirement("DDP-5.2-07")
def test_tagged_offset_advances_with_the_octets(transcript: Transcript) -> None:
    for _, message in transcript.messages(*TAGGED):
        _, offset = stag_and_to(message.first)
        for segment in message.segments:
            assert stag_and_to(segment)[1] == offset
            offset = (offset + segment.payload) % 2**64


@each(
    {
        READ_REQUEST: "RDMAP-5.2.1-06",
        **dict.fromkeys(SENDS, "RDMAP-5.3-08"),
        **dict.fromkeys(IMMEDIATES, "EXT-6.3-04"),
        ATOMIC_REQUEST: "EXT-5.2.1-13 EXT7306-5.2-01",
        ATOMIC_RESPONSE: "EXT-5.2.2-04",
    }
)
@pytest.mark.requirement("RDMAP-4.1-06", "EXT-4.1-03", "DDP-4.3-06", "DDP-4.3-01")
def test_queue_number(opcode: int, transcript: Transcript) -> None:
    for segment in transcript.segments(opcode):
        assert qn_msn_mo(segment)[0] == QUEUES[opcode]


@pytest.mark.requirement("DDP-4.3-08")
@pytest.mark.parametrize("queue", [0, 1, 3])
def test_first_msn_of_a_queue_is_1(queue: int, transcript: Transcript) -> None:
    opcodes = [opcode for opcode in QUEUES if QUEUES[opcode] == queue]
    for stream in transcript.streams.values():
        assert qn_msn_mo(sent(stream, *opcodes)[0].first)[1] == 1


@pytest.mark.parametrize(
    "queue",
    [
        0,
        # Read and Atomic Requests share a queue and so its MSN.
        pytest.param(1, marks=pytest.mark.requirement("EXT-5.2-01")),
        3,
    ],
)
@pytest.mark.requirement("DDP-4.3-07")
def test_msn_counts_the_messages_of_its_queue(queue: int, transcript: Transcript) -> None:
    opcodes = [opcode for opcode in QUEUES if QUEUES[opcode] == queue]
    for stream in transcript.streams.values():
        numbers = [qn_msn_mo(message.first)[1] for message in sent(stream, *opcodes)]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.requirement("DDP-4.3-11")
def test_msn_is_the_same_in_all_segments(transcript: Transcript) -> None:
    for _, message in transcript.messages(*SENDS):
        assert len({qn_msn_mo(segment)[1] for segment in message.segments}) == 1


@pytest.mark.requirement("DDP-4.3-12")
def test_first_message_offset_is_0(transcript: Transcript) -> None:
    for _, message in transcript.messages(*UNTAGGED):
        assert qn_msn_mo(message.first)[2] == 0


@pytest.mark.requirement("DDP-5.2-05", "DDP-4.1-05")
def test_message_offset_is_that_of_the_payload(transcript: Transcript) -> None:
    for _, message in transcript.messages(*UNTAGGED):
        offset = 0
        for segment in message.segments:
            assert qn_msn_mo(segment)[2] == offset
            offset += segment.payload


@pytest.mark.requirement("DDP-5.3-02")
def test_segments_leave_in_the_order_of_their_offsets(transcript: Transcript) -> None:
    for _, message in transcript.messages(*SENDS):
        offsets = [qn_msn_mo(segment)[2] for segment in message.segments]
        assert offsets == sorted(set(offsets))
    for _, message in transcript.messages(*TAGGED):
        base = stag_and_to(message.first)[1]
        ahead = [(stag_and_to(segment)[1] - base) % 2**64 for segment in message.segments]
        assert ahead == sorted(set(ahead))


# RFC 5041, 5: segmentation and order


def in_force(stream: Stream) -> Iterator[tuple[Message, Segment, list[int]]]:
    """Each segment of messages that may have several, and the MULPDUs that may be in force.

    One that was announced before one that was used does not come back.
    """
    held = 0
    for message in sent(stream, *TAGGED, *SENDS):
        for segment in message.segments:
            allowed = message.mulpdus[held:]
            yield message, segment, allowed
            if segment is not message.segments[-1] and segment.ulpdu_length in allowed:
                held += allowed.index(segment.ulpdu_length)


@pytest.mark.requirement("DDP-5.2-01", "MPA-3-02", "MPA-3-03", "DDP-3-02")
def test_no_segment_is_longer_than_mulpdu(transcript: Transcript) -> None:
    for stream in transcript.streams.values():
        for _, segment, allowed in in_force(stream):
            assert segment.ulpdu_length <= max(allowed)


@pytest.mark.requirement("MPA-4.5-04", "DDP-3-02")
def test_segments_are_as_long_as_mulpdu_allows(transcript: Transcript) -> None:
    for stream in transcript.streams.values():
        for message, segment, allowed in in_force(stream):
            assert segment is message.segments[-1] or segment.ulpdu_length in allowed


@pytest.mark.requirement("DDP-5.2-03", "RDMAP-4-01")
def test_every_octet_is_sent_once_and_in_order(transcript: Transcript) -> None:
    for _, message in transcript.messages(*TAGGED, *SENDS):
        assert message.origin is not None
        expected: list[int] = []
        found: list[int] = []
        for octets, ranges in (
            (expected, message.origin["memory"]),
            (found, [piece for segment in message.segments for piece in segment.memory]),
        ):
            for address, count in ranges:
                octets.extend((address + offset) % 2**64 for offset in range(count))
        assert found == expected
        for segment in message.segments:
            assert sum(count for _, count in segment.memory) == segment.payload


@pytest.mark.requirement("DDP-5.2-08")
def test_a_message_without_octets_is_one_segment(transcript: Transcript) -> None:
    empty = 0
    for _, message in transcript.messages(*TAGGED, *SENDS):
        if length_of(message) == 0:
            assert [segment.payload for segment in message.segments] == [0]
            empty += 1
    assert empty


@each(
    {
        WRITE: "RDMAP-5.1-06",
        READ_REQUEST: "RDMAP-5.2.1-07",
        SEND: "RDMAP-5.3-09",
        SEND_INV: "RDMAP-5.3-09",
        SEND_SE: "RDMAP-5.3-09",
        SEND_SE_INV: "RDMAP-5.3-09",
        IMMEDIATE: "EXT-6.3-06",
        IMMEDIATE_SE: "EXT-6.3-06",
        ATOMIC_REQUEST: "EXT-5.2.1-14",
    }
)
def test_messages_leave_in_the_order_of_their_work_requests(
    opcode: int, transcript: Transcript
) -> None:
    for stream in transcript.streams.values():
        messages, requests = sent(stream, opcode), asked(stream, opcode)
        assert len(messages) == len(requests)
        for message, request in zip(messages, requests, strict=True):
            assert _identity(message) == _identity_asked(opcode, request)


def _identity(message: Message) -> Any:
    """What tells a message from the others of its opcode."""
    if message.opcode == WRITE:
        return stag_and_to(message.first)
    if message.opcode == READ_REQUEST:
        return number(message.first.inline[16:20]), number(message.first.inline[20:28])
    if message.opcode == ATOMIC_REQUEST:
        return number(message.first.inline[8:12]), number(message.first.inline[12:20])
    if message.opcode in IMMEDIATES:
        return message.first.inline.hex()
    return sum(segment.payload for segment in message.segments)


def _identity_asked(opcode: int, request: dict[str, Any]) -> Any:
    if opcode in (WRITE, READ_REQUEST, ATOMIC_REQUEST):
        return request["remote_stag"], request["remote_tagged_offset"]
    return request["immediate_data"] if opcode in IMMEDIATES else request["length"]


@pytest.mark.requirement("RDMAP-5.5-10", "DDP-5.3-01", "RDMAP-3.1-03")
def test_one_message_for_each_work_request_in_their_order(transcript: Transcript) -> None:
    requests = [opcode for opcode in OPCODES if opcode not in (READ_RESPONSE, ATOMIC_RESPONSE)]
    for stream in transcript.streams.values():
        assert [message.opcode for message in sent(stream, *requests)] == [
            ASKED[post["opcode"]] for post in asked(stream, *requests)
        ]


@pytest.mark.requirement("RDMAP-5.2.2-06", "RDMAP-5.5-17", "EXT-5.2.2-09", "EXT-5.4-08")
def test_responses_leave_in_the_order_of_their_requests(transcript: Transcript) -> None:
    for stream in transcript.streams.values():
        found = [
            stag_and_to(message.first)[0]
            if message.opcode == READ_RESPONSE
            else number(message.first.inline[:4])
            for message in sent(stream, READ_RESPONSE, ATOMIC_RESPONSE)
        ]
        assert found == [
            request["identifier" if request["atomic"] else "sink_stag"]
            for request in stream.inbound
        ]


@each(
    {
        READ_RESPONSE: "RDMAP-5.2.1-11",
        ATOMIC_RESPONSE: "EXT-5.2.1-16",
    }
)
def test_every_request_is_answered(opcode: int, transcript: Transcript) -> None:
    for stream in transcript.streams.values():
        requests = [r for r in stream.inbound if r["atomic"] == (opcode == ATOMIC_RESPONSE)]
        assert len(sent(stream, opcode)) == len(requests) > 0


# RFC 5040, 4.4, and RFC 7306, 5.2 and 6.3: RDMAP headers


@pytest.mark.requirement("RDMAP-4.4-01", "RDMAP-5.2.1-09")
def test_read_request_header(transcript: Transcript) -> None:
    for _, message in transcript.messages(READ_REQUEST):
        asks = message.origin
        assert asks is not None and len(message.segments) == 1
        (sink,) = asks["elements"] or [{"stag": 0, "tagged_offset": 0}]
        assert message.first.inline == b"".join(
            (
                sink["stag"].to_bytes(4, "big"),
                sink["tagged_offset"].to_bytes(8, "big"),
                asks["length"].to_bytes(4, "big"),
                asks["remote_stag"].to_bytes(4, "big"),
                asks["remote_tagged_offset"].to_bytes(8, "big"),
            )
        )


@each(
    {
        READ_REQUEST: "RDMAP-4.2-01",
        IMMEDIATE: "EXT-6.3-05 EXT-4-01 EXT-4.2-01",
        IMMEDIATE_SE: "EXT-6.3-05 EXT-4-01 EXT-4.2-01",
        ATOMIC_REQUEST: "EXT-4-01 EXT-4.2-01",
        ATOMIC_RESPONSE: "EXT-4-01 EXT-4.2-01",
    }
)
def test_message_is_its_header_alone(opcode: int, transcript: Transcript) -> None:
    # RFC 5040, 4.4: 28 octets. RFC 7306: 6.1, 8 octets; 5.2.1, 52; 5.2.2, 12.
    octets = {READ_REQUEST: 28, IMMEDIATE: 8, IMMEDIATE_SE: 8, ATOMIC_REQUEST: 52}.get(opcode, 12)
    for _, message in transcript.messages(opcode):
        (segment,) = message.segments
        assert (segment.ulpdu_length, len(segment.inline)) == (18 + octets, octets)
        assert not segment.memory


@pytest.mark.requirement("RDMAP-4.2-01")
def test_other_messages_have_no_rdmap_header(transcript: Transcript) -> None:
    for segment in transcript.segments(*TAGGED, *SENDS):
        assert not segment.inline


@pytest.mark.requirement("EXT-4-01")
def test_immediate_data_are_those_of_the_work_request(transcript: Transcript) -> None:
    for _, message in transcript.messages(*IMMEDIATES):
        assert message.origin is not None
        assert message.first.inline.hex() == message.origin["immediate_data"]


def atomic_requests(transcript: Transcript, *operations: int) -> Iterator[tuple[bytes, list[int]]]:
    """The headers of Atomic Requests of these AOpCodes, each with the operands asked for: data,
    mask, compare data, compare mask."""
    found = 0
    for _, message in transcript.messages(ATOMIC_REQUEST):
        assert message.origin is not None
        if message.origin["operation"] in operations:
            found += 1
            yield message.first.inline, message.origin["operands"]
    assert found


@pytest.mark.requirement("EXT-5.2.1-01")
def test_atomic_request_header(transcript: Transcript) -> None:
    for _, message in transcript.messages(ATOMIC_REQUEST):
        asks, header = message.origin, message.first.inline
        assert asks is not None
        assert header[3] & 0xF == asks["operation"]
        assert number(header[8:12]) == asks["remote_stag"]
        assert number(header[12:20]) == asks["remote_tagged_offset"]
    for stream in transcript.streams.values():
        # Outstanding requests are told apart by their identifier.
        identifiers = [number(m.first.inline[4:8]) for m in sent(stream, ATOMIC_REQUEST)]
        assert len(set(identifiers)) == len(identifiers)


@pytest.mark.requirement("EXT-5.2.1-02")
def test_reserved_bits_of_an_atomic_request_are_zero(transcript: Transcript) -> None:
    for header, _ in atomic_requests(transcript, FETCH_ADD, SWAP, CMP_SWAP):
        assert number(header[:4]) >> 4 == 0


@pytest.mark.requirement("EXT-5.1.1-02")
def test_operands_of_an_atomic_request_are_big_endian(transcript: Transcript) -> None:
    for header, (data, *_) in atomic_requests(transcript, FETCH_ADD, SWAP, CMP_SWAP):
        assert header[20:28] == data.to_bytes(8, "big")
    for header, (_, mask, *_) in atomic_requests(transcript, FETCH_ADD, CMP_SWAP):
        assert header[28:36] == mask.to_bytes(8, "big")
    for header, (*_, compare, compare_mask) in atomic_requests(transcript, CMP_SWAP):
        assert header[36:44] == compare.to_bytes(8, "big")
        assert header[44:52] == compare_mask.to_bytes(8, "big")


@pytest.mark.requirement("EXT-5.2.1-04")
def test_mask_of_a_swap_is_all_ones(transcript: Transcript) -> None:
    for header, _ in atomic_requests(transcript, SWAP):
        assert header[28:36] == b"\xff" * 8


@pytest.mark.requirement("EXT-5.2.1-05")
@pytest.mark.parametrize("operation", [FETCH_ADD, SWAP])
def test_compare_data_that_mean_nothing_are_zero(operation: int, transcript: Transcript) -> None:
    for header, _ in atomic_requests(transcript, operation):
        assert header[36:44] == bytes(8)


@pytest.mark.requirement("EXT-5.2.1-06")
@pytest.mark.parametrize("operation", [FETCH_ADD, SWAP])
def test_compare_mask_that_means_nothing_is_all_ones(
    operation: int, transcript: Transcript
) -> None:
    for header, _ in atomic_requests(transcript, operation):
        assert header[44:52] == b"\xff" * 8


@pytest.mark.requirement("EXT-5.2.1-15", "EXT-5.4-07")
def test_atomics_are_carried_out_in_the_order_of_their_requests(transcript: Transcript) -> None:
    for stream in transcript.streams.values():
        requests = [request for request in stream.inbound if request["atomic"]]
        assert [atomic["operands"] for atomic in stream.atomics] == [
            request["operands"] for request in requests
        ]


@pytest.mark.requirement("EXT-5.2.2-02")
def test_atomic_response_has_the_identifier_of_its_request(transcript: Transcript) -> None:
    for _, message in transcript.messages(ATOMIC_RESPONSE):
        assert message.origin is not None
        assert message.first.inline[:4] == message.origin["identifier"].to_bytes(4, "big")


@pytest.mark.requirement("EXT-5.2.2-01")
def test_atomic_response_has_the_original_value(transcript: Transcript) -> None:
    for stream in transcript.streams.values():
        values = [message.first.inline[4:12] for message in sent(stream, ATOMIC_RESPONSE)]
        assert values == [original.to_bytes(8, "big") for original in stream.originals]


# Limits and Markers


@pytest.mark.requirement("RDMAP-6.1-05", "RDMAP-8.1.1-12", "RPCRDMA-6.2-03", "SEC-6.4.3.3-02")
@pytest.mark.requirement("RPCRDMA-3.3-07", "EXT7306-5.2.2-02")
def test_no_more_requests_are_outstanding_than_ord(transcript: Transcript) -> None:
    reached = 0
    for stream in transcript.streams.values():
        assert max(stream.outstanding) <= stream.connect["ord"]
        reached += max(stream.outstanding) == stream.connect["ord"]
    assert reached


def _with_markers(transcript: Transcript, markers: int) -> list[Stream]:
    streams = [s for s in transcript.streams.values() if s.connect["markers"] == markers]
    assert streams, f"no QP with markers={markers}"
    return streams


@pytest.mark.requirement("MPA-7.1.1-06")
def test_no_markers_for_a_peer_that_wants_none(transcript: Transcript) -> None:
    for stream in _with_markers(transcript, 0):
        assert not any(s.job["markers"] for m in stream.messages for s in m.segments)


@pytest.mark.requirement("MPA-7.1.1-07")
def test_markers_every_512_octets_for_a_peer_that_wants_them(transcript: Transcript) -> None:
    for stream in _with_markers(transcript, 1):
        for message in stream.messages:
            for segment in message.segments:
                assert segment.job["markers"]
                assert segment.job["until_marker"] * 4 == -segment.position % 512


@pytest.mark.requirement("MPA-7.1.2-18")
def test_the_stream_begins_with_a_marker(transcript: Transcript) -> None:
    for stream in _with_markers(transcript, 1):
        assert stream.messages[0].first.job["until_marker"] == 0
