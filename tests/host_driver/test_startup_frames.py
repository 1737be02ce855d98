"""MPA startup frames against the reference model, the captures, and garbage."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.host_driver import RTR, InitiatorInitiatorError, MalformedFrame
from stagecoach.host_driver.mpa_startup import (
    ENHANCED_REVISION,
    HEADER_OCTETS,
    MAXIMUM_PRIVATE_DATA,
    NOT_NEGOTIATED,
    REPLY_KEY,
    REQUEST_KEY,
    StartupFrame,
    missing_octets,
)
from stagecoach.sim.capture.connections import read_connections
from stagecoach.sim.model import startup as model
from stagecoach.sim.model.errors import MpaError
from tests.host_driver.startup_rig import to_driver, to_model

CAPTURES = sorted((Path(__file__).parents[1] / "data" / "captures").glob("*.pcap"))

DEPTHS = st.sampled_from([0, 1, 8, 16, NOT_NEGOTIATED - 1, NOT_NEGOTIATED]) | st.integers(
    0, NOT_NEGOTIATED
)


@st.composite
def frames(draw: st.DrawFn) -> StartupFrame:
    enhanced = draw(st.booleans())
    flags = [draw(st.booleans()) for _ in range(5)]
    length = draw(st.sampled_from([0, 1, 3, 4, 508]) | st.integers(0, 508))
    return StartupFrame(
        reply=flags[0],
        markers=flags[1],
        crc=flags[2],
        reject=flags[3],
        revision=ENHANCED_REVISION if enhanced else draw(st.sampled_from([1, 2])),
        ird=draw(DEPTHS) if enhanced else None,
        ord=draw(DEPTHS) if enhanced else None,
        peer_to_peer=enhanced and flags[4],
        rtr=RTR(draw(st.integers(0, 7))) if enhanced else RTR(0),
        private_data=draw(st.binary(min_size=length, max_size=length)),
    )


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good frame with some octets changed, then cut or lengthened."""
    octets = bytearray(draw(frames()).encode())
    for _ in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, min(len(octets), 2 * HEADER_OCTETS) - 1))
        octets[position] = draw(st.integers(0, 255))
    octets += draw(st.binary(max_size=3))
    return bytes(octets[: draw(st.integers(0, len(octets)) | st.just(len(octets)))])


def of_model(octets: bytes, *, reply: bool) -> model.StartupFrame | None:
    """What the reference model takes exactly these octets for; `None` for no such frame."""
    try:
        frame = model.StartupFrame.decode(octets)
    except MpaError:
        return None
    return frame if frame.reply == reply else None


@pytest.mark.requirement("MPA-7.1-04", "MPA-7.1.1-01", "MPA-7.1.1-03", "MPA-7.1.1-12")
@pytest.mark.requirement("MPA-7.1.1-13", "MPA-7.1.1-16", "MPA2-6-01", "MPA2-6-02", "MPA2-6-03")
@pytest.mark.requirement("MPA2-6-06", "MPA2-9-01")
@given(frames())
def test_frames_are_those_of_the_reference_model(frame):
    octets = frame.encode()
    assert octets == to_model(frame).encode()
    assert StartupFrame.decode(octets, reply=frame.reply) == frame
    assert to_driver(to_model(frame)) == frame


@pytest.mark.requirement("MPA-7.1.1-01", "MPA-7.1.1-03", "MPA2-9-01")
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_frames_of_captures_are_understood_and_made_again(capture):
    connections = read_connections(capture)
    assert connections
    for connection in connections:
        for captured in (connection.request, connection.reply):
            octets = captured.encode()
            frame = StartupFrame.decode(octets, reply=captured.reply)
            assert to_model(frame) == captured
            assert frame.encode() == octets


@pytest.mark.requirement("MPA-7.1.2-21", "MPA-7.1.2-23", "MPA2-6-01")
@given(st.binary(max_size=600) | damaged(), st.booleans())
def test_garbage_is_judged_as_the_reference_model_does(octets, reply):
    try:
        found = to_model(StartupFrame.decode(octets, reply=reply))
    except MalformedFrame:
        found = None
    assert found == of_model(octets, reply=reply)


@pytest.mark.requirement("MPA-7.1.2-21", "MPA-7.1.2-22")
@given(damaged(), st.booleans())
def test_a_frame_is_asked_for_octet_by_octet_and_refused_as_soon_as_it_is_wrong(octets, reply):
    for end in range(len(octets) + 1):
        try:
            missing = missing_octets(octets[:end], reply=reply)
        except MalformedFrame:
            # Whatever may follow: no frame begins so.
            assert of_model(octets, reply=reply) is None
            return
        # The reference model sees nothing wrong up to here, either.
        parsed = model.StartupFrame.parse(octets[:end])
        assert (parsed is not None) == (missing == 0)
        if not missing:
            return
        assert end + missing <= HEADER_OCTETS + MAXIMUM_PRIVATE_DATA


@pytest.mark.requirement("MPA-7.1.1-02", "MPA-7.1.1-04", "MPA-7.1.2-15")
@pytest.mark.parametrize("reply", [False, True], ids=["request", "reply"])
def test_every_octet_of_the_key_counts(reply):
    octets = StartupFrame(reply=reply).encode()
    for position in range(16):
        for bit in range(8):
            changed = bytearray(octets)
            changed[position] ^= 1 << bit
            with pytest.raises(MalformedFrame, match=r"no MPA Re|Initiator/Initiator"):
                # The wrong octet is the last that came.
                missing_octets(bytes(changed[: position + 1]), reply=reply)


@pytest.mark.requirement("MPA-7.1.1-02", "MPA-7.1.2-19")
def test_the_same_side_twice_is_told_from_garbage():
    for end in range(10, 16):  # "MPA ID Re" is common to both
        with pytest.raises(InitiatorInitiatorError, match="Initiator/Initiator error"):
            missing_octets(REQUEST_KEY[:end], reply=True)
        with pytest.raises(
            MalformedFrame, match="no MPA Request: it begins b'MPA ID Rep"
        ) as caught:
            missing_octets(REPLY_KEY[:end], reply=False)
        assert type(caught.value) is MalformedFrame


@pytest.mark.requirement("MPA-7.1.1-14")
@pytest.mark.parametrize("revision", [0, 3, 9, 255])
def test_revisions_but_1_and_2_are_refused(revision):
    octets = REQUEST_KEY + bytes([0x40, revision])
    with pytest.raises(MalformedFrame, match=f"revision {revision} in the Request; allowed: 1 and"):
        missing_octets(octets, reply=False)


@pytest.mark.requirement("MPA-7.1.1-16", "MPA-7.1.1-17", "MPA-7.1.1-18", "MPA-7.1.2-21")
@pytest.mark.parametrize("length", [0, 1, 511, 512, 513, 65535])
def test_private_data_has_at_most_512_octets(length):
    header = REPLY_KEY + b"\x40\x01" + length.to_bytes(2, "big")
    if length <= 512:
        assert missing_octets(header, reply=True) == length
        return
    message = f"private data length {length} in the Reply; allowed: 0 to 512"
    with pytest.raises(MalformedFrame, match=message):
        missing_octets(header, reply=True)


@pytest.mark.requirement("MPA2-6-01", "MPA2-6-06")
@pytest.mark.parametrize("length", range(4))
def test_enhanced_data_has_room_in_the_private_data(length):
    header = REPLY_KEY + bytes([0x50, 2, 0, length])
    with pytest.raises(MalformedFrame, match=f"length {length} in an enhanced Reply; allowed: 4"):
        missing_octets(header, reply=True)
    # In revision 1 the bit means nothing.
    assert missing_octets(REPLY_KEY + bytes([0x50, 1, 0, length]), reply=True) == length


@pytest.mark.requirement("MPA-7.1.1-12", "MPA2-6-02")
@pytest.mark.parametrize("reserved", range(16))
def test_reserved_bits_are_not_checked(reserved):
    octets = bytearray(StartupFrame(reply=True, ird=1, ord=2, private_data=b"x").encode())
    octets[16] |= reserved
    assert StartupFrame.decode(bytes(octets), reply=True) == StartupFrame(
        reply=True, ird=1, ord=2, private_data=b"x"
    )


@pytest.mark.requirement("MPA2-6-06", "MPA2-9-01")
def test_enhanced_data_is_in_network_byte_order():
    frame = StartupFrame(
        reply=False, ird=16, ord=8, peer_to_peer=True, rtr=RTR.WRITE | RTR.READ, private_data=b"!"
    )
    assert frame.encode() == REQUEST_KEY + bytes.fromhex("50020005 8010c008 21")


@pytest.mark.requirement("MPA2-9.2-13")
def test_options_count_only_in_the_peer_to_peer_model():
    frame = StartupFrame(reply=True, ird=1, ord=1, rtr=RTR.WRITE)
    assert (frame.rtr, frame.agreed_rtr) == (RTR.WRITE, RTR(0))


@pytest.mark.requirement("MPA-7.1.1-18", "MPA2-6-03", "MPA2-7-02")
@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            StartupFrame(reply=True, private_data=bytes(513)),
            "513 bytes of private data; allowed: 0 to 512",
        ),
        (
            StartupFrame(reply=True, ird=1, ord=1, private_data=bytes(509)),
            "509 bytes of private data; allowed: 0 to 508",
        ),
        (StartupFrame(reply=True, ird=1 << 14, ord=1), "IRD 16384 in a frame; allowed: 0 to 16383"),
        (StartupFrame(reply=True, ird=1, ord=-1), "ORD -1 in a frame; allowed: 0 to 16383"),
        (StartupFrame(reply=True, revision=3), "MPA revision 3; allowed: 1 or 2"),
        (StartupFrame(reply=True, revision=1, ird=1, ord=1), "MPA revision 1; allowed: 2"),
    ],
    ids=["private data", "with enhanced data", "ird", "ord", "revision", "enhanced revision"],
)
def test_what_has_no_place_in_a_frame_is_named(frame, message):
    with pytest.raises(ValueError, match=message):
        frame.encode()
