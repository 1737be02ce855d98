"""Terminates of the peer: read as the reference model reads them, and told in words."""

import random
import re
from dataclasses import replace

import pytest

from stagecoach.host_driver import (
    Cause,
    QPError,
    RecvWR,
    SendWR,
    WCStatus,
)
from stagecoach.host_driver.errors import describe
from stagecoach.host_driver.events import UNKNOWN_INDEX, AsyncEvent
from stagecoach.host_driver.qp import QP, raise_if_stopped
from stagecoach.host_driver.terminate import (
    OctetOrder,
    SegmentHeader,
    Terminate,
    read_terminate,
    readings,
)
from stagecoach.hw.interface.causes import CODES
from stagecoach.sim.model import ddp, errors, rdmap
from stagecoach.sim.model import terminate as model
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.rdmap import Form, Opcode, ReadRequest, control_octet
from stagecoach.sim.model.words import MESSAGE_NAMES, complaint
from tests.host_driver.fake_device import FakeDevice, NoStream

EVENT_OCTETS = 20
# What means something in both octet orders, if no header is copied.
BOTH = ("20050000", "20060000", "20070000", "02050000", "02060000", "02070000")
ORDERS = {Form.RFC: OctetOrder.RFC, Form.SIW: OctetOrder.SIW}

WRITE = TaggedHeader(0x11223344, 0x0102030405060708, rsvd_ulp=control_octet(Opcode.RDMA_WRITE))
READ = UntaggedHeader(1, 9, rsvd_ulp=control_octet(Opcode.RDMA_READ_REQUEST))
INVALIDATING = UntaggedHeader(
    *(0, 70000, 1442),
    last=False,
    rsvd_ulp=control_octet(Opcode.SEND_WITH_INVALIDATE),
    rsvd_ulp_word=0xABCD0123,
)
REQUEST = ReadRequest(0xAABBCCDD, 0x2000, 0x800, 0x11223344, 0x1000)
READ_SEGMENT = READ.encode() + REQUEST.encode()


def receive_terminate(device: FakeDevice, qp: int, header: bytes) -> None:
    """The device gets a Terminate with this header."""
    length = ddp.UNTAGGED_HEADER_OCTETS + len(header)
    cause = Cause.TERMINATE_RECEIVED
    device.event(qp, cause, header=header, ulpdu_length=length)


def first_octets(terminate: rdmap.Terminate) -> tuple[bytes, int]:
    """What the device tells of a Terminate header, and its length."""
    octets = terminate.encode()
    return octets[:EVENT_OCTETS], len(octets)


def assert_same(found: Terminate, expected: rdmap.Terminate, known: int) -> None:
    """All that the model found and that stands in the first `known` octets."""
    assert found.code == expected.error
    assert found.order is ORDERS[expected.form]
    assert found.has_header == bool(expected.ddp_header)
    assert found.segment_length == expected.segment_length
    assert (found.has_length or found.has_header) == (expected.segment_length is not None)
    assert found.has_read_request or not expected.rdmap_header
    assert (found.name is not None) == model.is_defined(expected.error)
    if not expected.ddp_header:
        assert found.segment is None
        return
    assert found.segment is not None
    assert found.segment.octets == expected.ddp_header[: max(0, known - 6)]
    if known < 6 + len(expected.ddp_header):
        return
    header, _ = ddp.decode(expected.ddp_header)
    segment = found.segment
    assert (segment.last, segment.opcode) == (
        header.last,
        rdmap.decode_control(header.rsvd_ulp).opcode,
    )
    if isinstance(header, TaggedHeader):
        assert (segment.stag, segment.tagged_offset) == (header.stag, header.tagged_offset)
        assert (segment.qn, segment.msn, segment.mo) == (None, None, None)
    else:
        assert (segment.qn, segment.msn, segment.mo) == (header.qn, header.msn, header.mo)
        assert (segment.stag, segment.tagged_offset) == (None, None)


def random_terminate(rng: random.Random) -> rdmap.Terminate:
    """A Terminate of either form, mostly with a code that exists."""
    error = rng.choice(list(errors.NAMES))
    if rng.random() < 0.2:
        error = ErrorCode(rng.randrange(16), rng.randrange(16), rng.randrange(256))
    tagged = TaggedHeader(
        *(rng.getrandbits(32), rng.getrandbits(64), rng.random() < 0.5),
        rsvd_ulp=control_octet(rng.randrange(16)),
    )
    untagged = UntaggedHeader(
        *(rng.getrandbits(32), rng.getrandbits(32), rng.getrandbits(32), rng.random() < 0.5),
        rsvd_ulp=control_octet(rng.randrange(16)),
        rsvd_ulp_word=rng.getrandbits(32),
    )
    header = rng.choice([b"", b"", tagged.encode(), untagged.encode()])
    length = rng.getrandbits(16) if header or rng.random() < 0.3 else None
    request = rng.randbytes(28) if header and rng.random() < 0.3 else b""
    return rdmap.Terminate(error, length, header, request, rng.choice(list(Form)))


@pytest.mark.requirement("RDMAP-4.8-02", "RDMAP-4.8-09")
@pytest.mark.parametrize("known", [EVENT_OCTETS, 100])
def test_terminates_mean_what_they_mean_to_the_reference(known):
    rng = random.Random(known)
    for number in range(2000):
        octets = random_terminate(rng).encode()
        if rng.random() < 0.1:
            # Also with other reserved bits, and with M without D and the like.
            flags = rng.getrandbits(8)
            octets = octets[:2] + bytes([flags, rng.getrandbits(8)]) + octets[4:]
        told = octets[:known]
        try:
            expected = model.readings(octets)
        except ValueError:
            with pytest.raises(ValueError, match="Terminate header"):
                readings(told, len(octets))
            continue
        found = readings(told, len(octets))
        assert len(found) == len(expected), f"Terminate {number}: {octets.hex()}"
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, len(told))


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("error", errors.NAMES, ids=str)
def test_every_code_is_named_as_in_the_reference(error, form):
    segment = READ_SEGMENT if error[:2] == (0, 1) else WRITE.encode()
    plain = model.terminate_for(error, segment)
    sent = replace(plain, form=form)
    found = read_terminate(*first_octets(sent))
    if found.code != error:
        # Some are each other's form without headers: then that of RFC 5040 wins.
        assert form is Form.SIW
        assert sent.encode()[:4].hex() in ("00000000", "10000000", "01000000", *BOTH)
        return
    text = found.describe()
    assert ("RDMAP", "DDP", "MPA")[error.layer] in text
    numbers = f"(layer {error.layer}, type {error.etype}, code 0x{error.code:02X})"
    assert numbers in text
    kinds = re.match(r"\w+( \(([^)]*)\))?: ", complaint(sent))
    assert kinds is not None
    assert kinds[2] is None or kinds[2] in text
    assert ("Linux siw" in text) == (sent.encode() != plain.encode())
    assert "\n" not in text


def test_every_code_that_the_device_sends_has_a_name():
    for code, _ in CODES.values():
        if code is not None and code.can_be_sent:
            octets = bytes([code.layer << 4 | code.error_type, code.error_code, 0, 0])
            assert read_terminate(octets, 4).name


@pytest.mark.parametrize("opcode", range(12))
def test_every_message_is_named_as_in_the_reference(opcode):
    header = UntaggedHeader(0, 1, rsvd_ulp=control_octet(opcode)).encode()
    assert SegmentHeader(header).describe().startswith(f"{MESSAGE_NAMES[opcode]}, ")


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        ("20020000", "MPA: CRC does not match (layer 2, type 0, code 0x02)"),
        (
            "02020000",
            "MPA: CRC does not match (layer 2, type 0, code 0x02); in the octet order of Linux siw",
        ),
        (
            "20050000",
            "MPA: local catastrophic error at startup (layer 2, type 0, code 0x05)",
        ),
        ("20060000", "MPA: insufficient IRD resources (layer 2, type 0, code 0x06)"),
        ("20070000", "MPA: no matching RTR option (layer 2, type 0, code 0x07)"),
        (
            "02060000",
            "RDMAP (remote operation error): unexpected opcode (layer 0, type 2, code 0x06)",
        ),
        ("23020000", "MPA: CRC does not match (layer 2, type 3, code 0x02)"),
        ("00120000", "RDMAP: local catastrophic error (layer 0, type 0, code 0x12)"),
        ("f7990000", "layer 15: undefined error (layer 15, type 7, code 0x99)"),
        (
            "11018000" + "0072",
            "DDP (tagged buffer error): base or bounds violation (layer 1, type 1, code 0x01); "
            "about a segment of 114 bytes",
        ),
        (
            "1101c000" + "0072" + WRITE.encode().hex(),
            "DDP (tagged buffer error): base or bounds violation (layer 1, type 1, code 0x01); "
            "about a segment of 114 bytes: RDMA Write, STag 0x11223344, "
            "TO 0x102030405060708",
        ),
        (
            "0100e000" + "002e" + READ_SEGMENT.hex(),
            "RDMAP (remote protection error): invalid STag (layer 0, type 1, code 0x00); about a "
            "segment of 46 bytes: RDMA Read Request, QN 1, MSN 9",
        ),
        (
            # R without a Read Request header, and the length of the payload.
            "10090700" + "0064" + INVALIDATING.encode().hex(),
            "RDMAP (remote protection error): STag cannot be invalidated (layer 0, type 1, code "
            "0x09); about a segment of 100 bytes of payload: Send with Invalidate, Invalidate "
            "STag 0xabcd0123, QN 0, MSN 70000, more to come; in the octet order of Linux siw",
        ),
    ],
)
def test_a_terminate_in_words(octets, text):
    header = bytes.fromhex(octets)
    assert read_terminate(header[:EVENT_OCTETS], len(header)).describe() == text


def test_a_segment_in_words():
    assert SegmentHeader(WRITE.encode()).describe() == (
        "RDMA Write, STag 0x11223344, TO 0x102030405060708"
    )
    assert SegmentHeader(INVALIDATING.encode()).describe() == (
        "Send with Invalidate, Invalidate STag 0xabcd0123, QN 0, MSN 70000, MO 1442, more to come"
    )
    assert SegmentHeader(b"\x41\x4d").describe() == "opcode 0xd"
    assert SegmentHeader(b"\x41").describe() == "a segment without header"
    assert SegmentHeader(b"").tagged is SegmentHeader(b"").last is None


@pytest.mark.requirement("RDMAP-4.2-02", "RDMAP-5.4-06")
@pytest.mark.parametrize(
    ("octets", "length", "message"),
    [
        (b"\x01\x00\xe0", 3, "Terminate header of 3 bytes; allowed: 4 or more"),
        (b"\x01\x00\xe0\x00", 23, "4 bytes of a Terminate header; needed: 7"),
        (b"\x01\x00", 4, "2 bytes of a Terminate header; needed: 4 or more"),
        (b"\x01\x00\x00\x00", 5, "Terminate header of 5 bytes; M, D and R ask for 4"),
        (
            b"\x01\x00\xe0\x00\x00\x2e\x41",
            51,
            "Terminate header of 51 bytes; M, D and R ask for 52",
        ),
    ],
)
def test_what_is_no_terminate_header_is_named(octets, length, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        readings(octets, length)


# Events


def connect(qp: QP, initiator: bool = True) -> None:
    qp.connect(NoStream(), initiator=initiator, crc=True, ord=3, ird=2, emss=1460)


@pytest.mark.requirement("RDMAP-3.2-03", "RDMAP-5.4-05", "RDMAP-5.4-07", "RDMAP-6.2.1-02")
def test_a_received_terminate_reaches_the_user_in_words(verbs):
    connect(verbs.qp)
    verbs.qp.post_send(SendWR(1))
    verbs.qp.post_recv(RecvWR(2))
    said = model.terminate_for(errors.DDP_BASE_OR_BOUNDS, WRITE.encode() + bytes(100))
    receive_terminate(verbs.device, 0, said.encode())
    completions = verbs.cq.wait(2)
    (event,) = verbs.context.events
    assert event.terminate is verbs.qp.terminate
    assert event.terminate.code == errors.DDP_BASE_OR_BOUNDS
    assert event.terminate.segment.stag == 0x11223344
    words = (
        "the peer sent a Terminate message: DDP (tagged buffer error): base or bounds violation "
        "(layer 1, type 1, code 0x01); about a segment of 114 bytes: RDMA Write, STag 0x11223344, "
        "TO 0x102030405060708"
    )
    assert event.describe() == f"QP 0 stopped: {words}"
    with pytest.raises(QPError, match=re.escape(f"QP 0 stopped: {words}")) as error:
        raise_if_stopped(verbs.qp)
    assert error.value.terminate is event.terminate
    for completion, name in zip(completions, ("SEND 1", "RECV 2"), strict=True):
        assert completion.status == WCStatus.WR_FLUSH_ERR
        assert completion.terminate is event.terminate
        assert completion.describe() == f"{name} of QP 0: WR_FLUSH_ERR, {words}"
    # Also what is posted later.
    verbs.qp.post_recv(RecvWR(3))
    assert verbs.cq.poll()[0].describe() == f"RECV 3 of QP 0: WR_FLUSH_ERR, {words}"


def test_nothing_is_told_of_a_terminate_whose_event_could_not_be_written():
    event = AsyncEvent(5, Cause.TERMINATE_RECEIVED, UNKNOWN_INDEX, 0, b"")
    assert event.describe() == (
        "QP 5 stopped: the peer sent a Terminate message, of which nothing else is known"
    )


@pytest.mark.requirement("RDMAP-4.2-02", "RDMAP-5.4-06")
@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"", "Terminate header of 0 bytes; allowed: 4 or more"),
        (b"\x11\x01\xc0\x00\x00\x10", "Terminate header of 6 bytes; M, D and R ask for 20"),
        (bytes(60), "Terminate header of 60 bytes; M, D and R ask for 4"),
    ],
)
def test_a_terminate_in_error_is_told_as_such(verbs, header, message):
    connect(verbs.qp)
    receive_terminate(verbs.device, 0, header)
    verbs.context.process_events()
    (event,) = verbs.context.events
    assert event.terminate is None
    assert event.header == header[:EVENT_OCTETS]
    assert event.describe() == (
        f"QP 0 stopped: the peer sent a Terminate message, in error itself: {message}"
    )


@pytest.mark.requirement("MPA2-8-01", "MPA2-9.3-01")
@pytest.mark.parametrize("initiator", [False, True])
def test_startup_codes_are_those_of_mpa_from_either_end(verbs, initiator):
    connect(verbs.qp, initiator)
    receive_terminate(verbs.device, 0, b"\x20\x06\x00\x00")
    verbs.context.process_events()
    (event,) = verbs.context.events
    assert event.terminate.code == (2, 0, 6)
    assert event.terminate.order is OctetOrder.RFC
    assert "siw" not in event.describe()


def test_a_terminate_for_a_qp_that_is_gone_is_kept(verbs):
    receive_terminate(verbs.device, 3, b"\x20\x02\x00\x00")
    verbs.context.process_events()
    assert [event.terminate.name for event in verbs.context.events] == ["CRC does not match"]


@pytest.mark.requirement("RDMAP-7.1-01", "DDP-7.1-15", "DDP-8.3-04")
@pytest.mark.parametrize(
    ("cause", "index", "ulpdu", "text"),
    [
        (
            Cause.TAGGED_BOUNDS,
            0,
            WRITE.encode() + bytes(100),
            "; segment of 114 bytes: RDMA Write, STag 0x11223344, TO 0x102030405060708",
        ),
        (
            Cause.INVALIDATE_REFUSED,
            0,
            INVALIDATING.encode(),
            "; segment of 18 bytes: Send with Invalidate, Invalidate STag 0xabcd0123, QN 0, "
            "MSN 70000, MO 1442, more to come",
        ),
        (Cause.ULPDU_TOO_SHORT, 0, b"\x41", "; segment of 1 bytes: a segment without header"),
        (Cause.CRC_ERROR, 0, b"", ""),
        (Cause.LOCAL_SEND_PROTECTION, 77, b"", "; entry 77 of the send queue"),
        (
            Cause.LOCAL_RECEIVE_PROTECTION,
            3,
            INVALIDATING.encode(),
            "; entry 3 of the receive queue",
        ),
    ],
)
def test_an_event_in_words(verbs, cause, index, ulpdu, text):
    verbs.device.event(2, cause, index, ulpdu[:EVENT_OCTETS], len(ulpdu))
    verbs.context.process_events()
    (event,) = verbs.context.events
    assert event.terminate is None
    assert event.describe() == f"QP 2 stopped: {describe(cause)}{text}"
    assert isinstance(event, AsyncEvent)
