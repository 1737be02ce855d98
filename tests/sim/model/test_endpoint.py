"""The software endpoint: traffic between two of them, and every receive check."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecoach.sim.model import ddp, errors, mpa, rdmap
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.endpoint import Completion, Endpoint, Operation, Status
from stagecoach.sim.model.memory import Rights
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, Terminate

MEMORY = 4096
BASE = 0x1000_0000
STAG = 0x1234_5678


def exchange(left: Endpoint, right: Endpoint, cut=None) -> None:
    """Move octets both ways until both are silent; ``cut`` gives the length of each piece."""
    while True:
        moved = False
        for source, destination in ((left, right), (right, left)):
            octets = b"".join(source.take_output())
            moved = moved or bool(octets)
            while octets:
                count = cut(len(octets)) if cut else len(octets)
                destination.receive(octets[:count])
                octets = octets[count:]
        if not moved:
            return


def region_of(endpoint: Endpoint, **options) -> bytearray:
    memory = bytearray(MEMORY)
    endpoint.register(memory, **{"stag": STAG, "base": BASE, **options})
    return memory


OPERATION = st.tuples(
    st.sampled_from(["write", "send", "read"]),
    st.integers(0, 1500),
    st.integers(0, MEMORY - 1500),
    st.integers(0, MEMORY - 1500),
)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.booleans(), OPERATION), max_size=12),
    st.integers(128, 1600),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
    st.data(),
)
def test_random_traffic_of_two_endpoints(work, mulpdu, markers, crc, order, data):
    common = {"mulpdu": mulpdu, "crc": crc, "ord": order, "ird": order}
    ends = [
        Endpoint(markers_out=markers, **common),
        Endpoint(markers_in=markers, responder=True, **common),
    ]
    remote = [region_of(end) for end in ends]
    expected = [bytearray(MEMORY) for _ in ends]
    local = [bytearray(MEMORY) for _ in ends]
    for end, memory in zip(ends, local, strict=True):
        end.register(memory, stag=1)
    posted = [[], []]
    sent = [[], []]
    for number, (side, (kind, length, here, there)) in enumerate(work):
        end, other = ends[side], ends[1 - side]
        payload = bytes((number * 31 + i) % 256 for i in range(length))
        posted[side].append(number)
        if kind == "write":
            end.rdma_write(payload, STAG, BASE + there, number)
            expected[1 - side][there : there + length] = payload
        elif kind == "send":
            other.post_receive(length + 3, number)
            end.post_send(payload, number)
            sent[1 - side].append((number, payload))
        else:
            end.rdma_read(1, here, length, STAG, BASE + there, number)
    exchange(*ends, cut=lambda left: data.draw(st.integers(1, left)))
    if not any(side is False for side, _ in work):
        # A responder stays silent until the initiator has sent something.
        ends[0].post_send(b"")
        ends[1].post_receive(0)
        exchange(*ends)
    for side, end in enumerate(ends):
        assert end.error is None, end.error_detail
        completions = [c for c in end.poll() if c.work_id is not None]
        assert all(c.status is Status.SUCCESS for c in completions)
        receives = [c for c in completions if c.operation is Operation.RECEIVE]
        assert [(c.work_id, c.payload) for c in receives] == sent[side]
        others = [c.work_id for c in completions if c.operation is not Operation.RECEIVE]
        assert others == posted[side], "completion order is posting order"
        assert remote[side] == expected[side]
        # While Writes of other work are under way a Read may see them or not: so read at the end.
        end.rdma_read(1, 0, MEMORY, STAG, BASE)
        exchange(*ends)
        assert local[side] == expected[1 - side]


def test_write_and_read_move_exactly_the_octets():
    left, right = Endpoint(), Endpoint(responder=True)
    memory = region_of(right)
    back = bytearray(100)
    left.register(back, stag=7, base=50)
    left.rdma_write(b"stagecoach", STAG, BASE + 5, "write")
    left.rdma_read(7, 53, 12, STAG, BASE + 4, "read")
    exchange(left, right)
    assert memory == bytes(5) + b"stagecoach" + bytes(MEMORY - 15)
    assert back == bytes(3) + b"\0stagecoach\0" + bytes(85)
    assert [(c.work_id, c.length) for c in left.poll()] == [("write", 10), ("read", 12)]


def test_the_four_kinds_of_send():
    left, right = Endpoint(), Endpoint(responder=True)
    for stag in (10, 11):
        right.register(bytearray(8), stag=stag)
    cases = [(None, False), (10, False), (None, True), (11, True)]
    for stag, solicited in cases:
        right.post_receive(8)
        left.post_send(b"x", invalidate_stag=stag, solicited=solicited)
    exchange(left, right)
    assert [(c.invalidated_stag, c.solicited) for c in right.poll()] == cases
    assert right.memory.get(10) is None
    assert right.memory.get(11) is None


def test_a_shared_stag_cannot_be_invalidated_by_the_peer():
    left, right = Endpoint(), Endpoint(responder=True)
    memory = region_of(right, shared=True)
    right.post_receive(8)
    left.post_send(b"x", invalidate_stag=STAG)
    exchange(left, right)
    assert right.error == errors.RDMAP_OPERATION_CANNOT_INVALIDATE
    assert right.memory.get(STAG) is not None
    assert not any(memory)


def test_a_new_mulpdu_holds_for_the_next_segment_of_a_message():
    end = Endpoint(mulpdu=1014)
    end.rdma_write(bytes(range(256)) * 12, STAG, BASE)
    output = end.take_output(limit=1)
    # RFC 5044, 4.5: the EMSS changed.
    end.mulpdu = mpa.mulpdu(536)
    output += end.take_output(limit=2)
    end.mulpdu = 2014
    output += end.take_output()
    segments = [ddp.decode(ulpdu) for ulpdu in mpa.Deframer().feed(b"".join(output))]
    assert [len(payload) for _, payload in segments] == [1000, 516, 516, 1040]
    assert [header.tagged_offset - BASE for header, _ in segments] == [0, 1000, 1516, 2032]
    assert [header.last for header, _ in segments] == [False, False, False, True]


def test_a_read_request_keeps_its_place_until_its_answer_is_out():
    requests = [replace(REQUEST, msn=msn).encode() + READ.encode() for msn in (1, 2)]
    long = REQUEST.encode() + replace(READ, size=200).encode()
    for first, error in ((requests[0], None), (long, errors.DDP_NO_BUFFER)):
        end = Endpoint(responder=True, ird=1, mulpdu=114)
        region_of(end)
        end.receive(mpa.frame_fpdu(first))
        assert len(end.take_output(limit=1)) == 1
        end.receive(mpa.frame_fpdu(requests[1]))
        assert end.error == error


def test_responder_is_silent_before_the_first_fpdu():
    left, right = Endpoint(), Endpoint(responder=True)
    left.post_receive(4)
    right.post_send(b"late")
    assert right.take_output() == []
    left.send_ready_to_receive()
    exchange(left, right)
    assert [c.payload for c in left.poll()] == [b"late"]


def test_ord_limits_outstanding_reads():
    left, right = Endpoint(ord=2), Endpoint(responder=True, ird=2)
    region_of(right)
    left.register(bytearray(16), stag=1)
    for number in range(5):
        left.rdma_read(1, 0, 16, STAG, BASE, number)
    assert len(left.take_output()) == 2


def test_memory_is_untouched_while_the_crc_is_missing():
    right = Endpoint(responder=True)
    memory = region_of(right)
    fpdu = mpa.frame_fpdu(TaggedHeader(STAG, BASE, rsvd_ulp=0x40).encode() + b"data")
    right.receive(fpdu[:-1])
    assert memory == bytes(MEMORY)
    right.receive(fpdu[-1:])
    assert memory[:4] == b"data"


# Receive checks: what one segment leads to.

WRITE = TaggedHeader(STAG, BASE, rsvd_ulp=rdmap.control_octet(Opcode.RDMA_WRITE))
RESPONSE = TaggedHeader(7, 0, rsvd_ulp=rdmap.control_octet(Opcode.RDMA_READ_RESPONSE))
SEND = UntaggedHeader(0, 1, rsvd_ulp=rdmap.control_octet(Opcode.SEND))
INVALIDATE = replace(SEND, rsvd_ulp=rdmap.control_octet(Opcode.SEND_WITH_INVALIDATE))
REQUEST = UntaggedHeader(1, 1, rsvd_ulp=rdmap.control_octet(Opcode.RDMA_READ_REQUEST))
READ = ReadRequest(9, 0, 16, STAG, BASE)
READ_ONLY, WRITE_ONLY, OTHER_PD, OTHER_STREAM = 21, 22, 23, 24

CASES = {
    "tagged DV": (replace(WRITE, version=0), b"x", errors.DDP_TAGGED_INVALID_VERSION),
    "untagged DV": (replace(SEND, version=2), b"x", errors.DDP_UNTAGGED_INVALID_VERSION),
    "RV": (replace(SEND, rsvd_ulp=0x03), b"x", errors.RDMAP_INVALID_VERSION),
    "reserved opcode": (replace(SEND, rsvd_ulp=0x4C), b"x", errors.RDMAP_UNEXPECTED_OPCODE),
    "tagged Send": (replace(WRITE, rsvd_ulp=0x43), b"x", errors.RDMAP_UNEXPECTED_OPCODE),
    "untagged Write": (replace(SEND, rsvd_ulp=0x40), b"x", errors.RDMAP_UNEXPECTED_OPCODE),
    "Send on QN 1": (replace(SEND, qn=1), b"x", errors.RDMAP_UNEXPECTED_OPCODE),
    "unknown QN": (replace(SEND, qn=4), b"x", errors.DDP_INVALID_QN),
    "QN 3 without atomics": (replace(SEND, qn=3), b"x", errors.DDP_INVALID_QN),
    "Send MSN": (replace(SEND, msn=2), b"x", errors.DDP_INVALID_MSN),
    "Send MO": (replace(SEND, mo=1), b"x", errors.DDP_INVALID_MO),
    "empty Send MO": (replace(SEND, mo=1), b"", errors.DDP_INVALID_MO),
    "Send too long": (SEND, bytes(65), errors.DDP_MESSAGE_TOO_LONG),
    "Write STag": (replace(WRITE, stag=5), b"x", errors.DDP_INVALID_STAG),
    "Write key": (replace(WRITE, stag=STAG ^ 1), b"x", errors.DDP_INVALID_STAG),
    "Write PD": (replace(WRITE, stag=OTHER_PD), b"x", errors.DDP_STAG_NOT_ASSOCIATED),
    "Write stream": (replace(WRITE, stag=OTHER_STREAM), b"x", errors.DDP_STAG_NOT_ASSOCIATED),
    "Write rights": (replace(WRITE, stag=READ_ONLY), b"x", errors.DDP_INVALID_STAG),
    "Write below": (replace(WRITE, tagged_offset=BASE - 1), b"x", errors.DDP_BASE_OR_BOUNDS),
    "Write beyond": (
        replace(WRITE, tagged_offset=BASE + MEMORY - 1),
        b"xy",
        errors.DDP_BASE_OR_BOUNDS,
    ),
    "Write wrap": (replace(WRITE, tagged_offset=2**64 - 1), b"xy", errors.DDP_TO_WRAP),
    "Read STag": (REQUEST, replace(READ, source_stag=5), errors.RDMAP_INVALID_STAG),
    "Read PD": (REQUEST, replace(READ, source_stag=OTHER_PD), errors.RDMAP_STAG_NOT_ASSOCIATED),
    "Read rights": (REQUEST, replace(READ, source_stag=WRITE_ONLY), errors.RDMAP_ACCESS_RIGHTS),
    "Read beyond": (REQUEST, replace(READ, size=MEMORY + 1), errors.RDMAP_BASE_OR_BOUNDS),
    "Read wrap": (REQUEST, replace(READ, source_tagged_offset=2**64 - 8), errors.RDMAP_TO_WRAP),
    "Read MSN": (replace(REQUEST, msn=0), READ, errors.DDP_INVALID_MSN),
    "Read MO": (replace(REQUEST, mo=4), READ, errors.DDP_INVALID_MO),
    "Read too long": (REQUEST, bytes(29), errors.DDP_MESSAGE_TOO_LONG),
    "Read too short": (REQUEST, bytes(27), errors.RDMAP_OPERATION_UNSPECIFIED),
    "Response unasked": (RESPONSE, b"x", errors.RDMAP_UNEXPECTED_OPCODE),
    "Invalidate unknown": (
        replace(INVALIDATE, rsvd_ulp_word=5),
        b"x",
        errors.RDMAP_OPERATION_CANNOT_INVALIDATE,
    ),
    "Invalidate PD": (
        replace(INVALIDATE, rsvd_ulp_word=OTHER_PD),
        b"x",
        errors.RDMAP_PROTECTION_CANNOT_INVALIDATE,
    ),
}


def victim() -> tuple[Endpoint, list[bytearray]]:
    """An endpoint with one buffer of every kind, and all its memory."""
    end = Endpoint(responder=True)
    memory = [
        region_of(end),
        region_of(end, stag=READ_ONLY, rights=Rights.REMOTE_READ),
        region_of(end, stag=WRITE_ONLY, rights=Rights.REMOTE_WRITE),
        region_of(end, stag=OTHER_PD, pd=1),
        region_of(end, stag=7, base=0),
        bytearray(64),
    ]
    other = Endpoint(memory=end.memory)
    memory.append(region_of(other, stag=OTHER_STREAM, this_stream_only=True))
    end.post_receive(memory[5], "receive")
    return end, memory


def terminate_of(end: Endpoint) -> Terminate:
    (fpdu,) = end.take_output()
    (segment,) = mpa.Deframer().feed(fpdu)
    header, payload = ddp.decode(segment)
    assert header == UntaggedHeader(2, 1, rsvd_ulp=rdmap.control_octet(Opcode.TERMINATE))
    return Terminate.decode(payload)


@pytest.mark.parametrize("name", CASES)
def test_failed_check_places_nothing_and_terminates(name):
    header, payload, error = CASES[name]
    octets = payload.encode() if isinstance(payload, ReadRequest) else payload
    end, memory = victim()
    segment = header.encode() + octets
    good = WRITE.encode() + b"dropped"
    end.receive(mpa.frame_fpdu(segment) + mpa.frame_fpdu(good))
    assert end.error == error, end.error_detail
    assert not any(map(any, memory))
    assert end.poll() == [Completion(Operation.RECEIVE, "receive", Status.FLUSHED)]
    terminate = terminate_of(end)
    assert terminate.error == error
    assert terminate.segment_length == len(segment)
    assert terminate.ddp_header == header.encode()
    is_read_protection = error[:2] == (0, 1) and header is REQUEST
    assert terminate.rdmap_header == (octets if is_read_protection else b"")
    assert end.take_output() == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"mo": 0}, errors.DDP_INVALID_MO),
        ({"mo": 5}, errors.DDP_INVALID_MO),
        ({"msn": 2}, errors.DDP_INVALID_MSN),
        ({"rsvd_ulp": 0x45}, errors.RDMAP_UNEXPECTED_OPCODE),
    ],
)
def test_second_segment_that_does_not_continue_its_send(change, error):
    end, memory = victim()
    end.receive(mpa.frame_fpdu(replace(SEND, last=False).encode() + b"good"))
    end.receive(mpa.frame_fpdu(replace(SEND, **{"mo": 4, **change}).encode() + b"bad"))
    assert end.error == error
    assert memory[5] == b"good" + bytes(60)


def test_msn_wraps_from_its_largest_value_to_zero():
    left, right = Endpoint(), Endpoint(responder=True)
    left._transmitter.msn[0] = right._sink.sends.msn = 2**32 - 1
    for number in range(3):
        right.post_receive(1, number)
        left.post_send(bytes([number]))
    exchange(left, right)
    assert right.error is None
    assert [c.work_id for c in right.poll()] == [0, 1, 2]


def test_send_without_buffer():
    end = Endpoint(responder=True)
    end.receive(mpa.frame_fpdu(SEND.encode()))
    assert end.error == errors.DDP_NO_BUFFER


def test_more_reads_than_ird():
    end = Endpoint(responder=True, ird=1)
    region_of(end)
    requests = [replace(REQUEST, msn=msn).encode() + READ.encode() for msn in (1, 2)]
    end.receive(b"".join(map(mpa.frame_fpdu, requests)))
    assert end.error == errors.DDP_NO_BUFFER
    # The first request is still answered, then comes the Terminate.
    assert len(end.take_output()) == 2


@pytest.mark.parametrize(
    ("change", "payload", "error"),
    [
        ({"stag": STAG}, 8, errors.DDP_INVALID_STAG),
        ({"tagged_offset": 1}, 8, errors.DDP_BASE_OR_BOUNDS),
        ({}, 9, errors.DDP_BASE_OR_BOUNDS),
        ({}, 7, errors.DDP_BASE_OR_BOUNDS),
        ({}, 0, errors.DDP_BASE_OR_BOUNDS),
    ],
)
def test_read_response_that_differs_from_its_request(change, payload, error):
    end, memory = victim()
    end.receive(mpa.frame_fpdu(replace(WRITE, stag=1).encode()))
    end.rdma_read(7, 0, 8, 1, 0)
    end.take_output()
    end.receive(mpa.frame_fpdu(replace(RESPONSE, **change).encode() + b"x" * payload))
    assert end.error == error
    assert not any(map(any, memory))


def test_empty_segments_need_no_stag():
    end, _ = victim()
    end.receive(mpa.frame_fpdu(replace(WRITE, stag=1, tagged_offset=2**64 - 1).encode()))
    empty = ReadRequest(0, 0, 0, 5, 2**64 - 1)
    end.receive(mpa.frame_fpdu(REQUEST.encode() + empty.encode()))
    assert end.error is None
    assert len(end.take_output()) == 1


def test_short_ulpdu_terminates_without_headers():
    end, _ = victim()
    end.receive(mpa.frame_fpdu(WRITE.encode()))
    end.receive(mpa.frame_fpdu(b"\xc1\x40\0"))
    assert terminate_of(end) == Terminate(errors.MPA_MARKER_MISMATCH)


def test_crc_error_terminates_without_headers():
    end, _ = victim()
    end.receive(mpa.frame_fpdu(WRITE.encode()))
    end.receive(mpa.frame_fpdu(WRITE.encode() + b"data")[:-1] + b"?")
    assert terminate_of(end) == Terminate(errors.MPA_CRC)


def test_responder_closes_instead_of_terminating_before_the_first_fpdu():
    end, _ = victim()
    end.receive(mpa.frame_fpdu(WRITE.encode() + b"data")[:-1] + b"?")
    assert end.closed
    assert end.take_output() == []


def test_received_terminate_flushes_and_is_not_answered():
    left, right = Endpoint(), Endpoint(responder=True)
    left.register(bytearray(8), stag=1)
    left.post_receive(8, "receive")
    left.rdma_read(1, 0, 8, STAG, 0, "read")
    exchange(left, right)
    assert right.error == errors.RDMAP_INVALID_STAG
    assert left.error is None
    assert left.terminate_received.error == errors.RDMAP_INVALID_STAG
    assert {c.work_id: c.status for c in left.poll()} == dict.fromkeys(
        ("read", "receive"), Status.FLUSHED
    )
    left.post_send(b"late", "late")
    assert [c.status for c in left.poll()] == [Status.FLUSHED]


HEADERS = st.one_of(
    st.builds(
        TaggedHeader,
        st.sampled_from([STAG, READ_ONLY, WRITE_ONLY, OTHER_PD, OTHER_STREAM, 7, 5]),
        st.sampled_from([0, BASE, BASE + MEMORY - 4, BASE - 1, 2**64 - 4]),
        st.booleans(),
        st.integers(0x40, 0x4F),
    ),
    st.builds(
        UntaggedHeader,
        st.integers(0, 4),
        st.integers(0, 4),
        st.integers(0, 8),
        st.booleans(),
        st.integers(0x40, 0x4F),
        st.sampled_from([0, STAG, OTHER_PD, 5]),
    ),
)


@settings(deadline=None)
@given(st.lists(st.tuples(HEADERS, st.binary(max_size=30)), min_size=1, max_size=8))
def test_any_well_framed_segments_leave_protected_memory_alone(segments):
    end, memory = victim()
    for header, payload in segments:
        end.receive(mpa.frame_fpdu(header.encode() + payload))
    # Without write rights, of another PD, of another stream.
    for protected in (1, 3, 6):
        assert not any(memory[protected])
    assert len(end.take_output()) <= len(segments) + 1
    if end.error is not None:
        assert end.error in errors.NAMES


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(min_size=1, max_size=80), st.booleans()), max_size=8))
def test_garbage_never_raises_and_never_reaches_closed_memory(garbage):
    end, memory = victim()
    for octets, framed in garbage:
        end.receive(mpa.frame_fpdu(octets) if framed else octets)
    end.take_output()
    assert not any(memory[1]), "a buffer without write rights changed"
    assert not any(memory[3]), "a buffer of another PD changed"
