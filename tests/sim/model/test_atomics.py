"""Headers and arithmetic of the Atomic Operations."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecoach.sim.model import ddp
from stagecoach.sim.model.atomics import (
    CMP_SWAP,
    FETCH_ADD,
    SWAP,
    WORD,
    AtomicRequest,
    AtomicResponse,
    cmp_swap,
    fetch_add,
    result_of,
)
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.rdmap import QUEUE_OF, Opcode, control_octet
from tests.sim.model.vectors import payload_of, vector, vectors

U4, U28, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (4, 28, 32, 64))
# Edges are likelier with a few bits.
SPARSE = st.one_of(U64, st.builds(lambda a, b: 1 << a | 1 << b, *[st.integers(0, 63)] * 2))
REQUEST = st.builds(AtomicRequest, U4, U32, U32, U64, U64, U64, U64, U64, U28)


@pytest.mark.parametrize("entry", vectors("fetchadd"))
def test_fetch_add(entry):
    original, add, mask = (int(entry[key], 16) for key in ("orig", "add", "mask"))
    assert fetch_add(original, add, mask) == int(entry["result"], 16)


@pytest.mark.parametrize("entry", vectors("cmpswap"))
def test_cmp_swap(entry):
    keys = ("orig", "swap", "swap_mask", "compare", "compare_mask")
    assert cmp_swap(*(int(entry[key], 16) for key in keys)) == int(entry["result"], 16)


@settings(deadline=None)
@given(SPARSE, SPARSE, SPARSE)
def test_fetch_add_adds_each_field_without_its_neighbours(original, add, mask):
    expected = 0
    start = 0
    for end in range(64):
        if mask >> end & 1 or end == 63:
            field = (1 << end - start + 1) - 1
            total = (original >> start & field) + (add >> start & field)
            expected |= (total & field) << start
            start = end + 1
    assert fetch_add(original, add, mask) == expected
    # The closed form.
    whole = ((original & ~mask) + (add & ~mask)) ^ ((original ^ add) & mask)
    assert expected == whole & WORD


@settings(deadline=None)
@given(SPARSE, SPARSE, SPARSE, SPARSE, SPARSE)
def test_cmp_swap_changes_the_masked_bits_if_the_compared_ones_agree(
    original, swap, swap_mask, compare, compare_mask
):
    for close in (compare, original, original ^ compare_mask, original ^ (~compare_mask & WORD)):
        result = cmp_swap(original, swap, swap_mask, close, compare_mask)
        agree = all(
            original >> bit & 1 == close >> bit & 1 for bit in range(64) if compare_mask >> bit & 1
        )
        for bit in range(64):
            new = swap if agree and swap_mask >> bit & 1 else original
            assert result >> bit & 1 == new >> bit & 1


@pytest.mark.parametrize("operation", [FETCH_ADD, SWAP, CMP_SWAP, 3, 15])
@settings(deadline=None, max_examples=30)
@given(request_header=REQUEST, original=U64)
def test_the_result_depends_on_the_fields_of_the_operation_alone(
    operation, request_header, original
):
    r = replace(request_header, operation=operation)
    expected = {
        FETCH_ADD: fetch_add(original, r.data, r.mask),
        SWAP: r.data,
        CMP_SWAP: cmp_swap(original, r.data, r.mask, r.compare, r.compare_mask),
    }
    if r.operation in expected:
        assert result_of(r, original) == expected[r.operation]
    else:
        with pytest.raises(ValueError, match="not a valid AtomicOperation"):
            result_of(r, original)


@settings(deadline=None)
@given(REQUEST)
def test_a_request_is_decoded_as_encoded(request_header):
    octets = request_header.encode()
    assert len(octets) == 52
    assert AtomicRequest.decode(octets) == request_header


@settings(deadline=None)
@given(st.builds(AtomicResponse, U32, U64))
def test_a_response_is_decoded_as_encoded(response):
    octets = response.encode()
    assert len(octets) == 12
    assert AtomicResponse.decode(octets) == response


def test_the_fields_stand_where_the_figures_have_them():
    numbers = [int(f"{n:x}" * 16, 16) for n in range(1, 6)]
    request = AtomicRequest(CMP_SWAP, 0x11121314, 0x21222324, *numbers, reserved=0xABCDEF1)
    assert request.encode().hex() == (
        "abcdef12" + "11121314" + "21222324" + "".join(digit * 16 for digit in "12345")
    )
    assert AtomicResponse(0x11121314, numbers[4]).encode().hex() == "11121314" + "5" * 16


@pytest.mark.parametrize("octets", [0, 11, 13, 51, 53])
def test_a_header_of_another_length_is_refused(octets):
    for kind, needed in ((AtomicRequest, 52), (AtomicResponse, 12)):
        with pytest.raises(ValueError, match=f"of {octets} bytes; {needed} are required"):
            kind.decode(bytes(octets))


@pytest.mark.parametrize(
    ("field", "value", "bits"),
    [
        ("operation", 16, 4),
        ("reserved", 2**28, 28),
        ("identifier", 2**32, 32),
        ("stag", -1, 32),
        ("tagged_offset", 2**64, 64),
        ("data", -1, 64),
        ("mask", 2**64, 64),
        ("compare", 2**64, 64),
        ("compare_mask", 2**64, 64),
    ],
)
def test_values_too_large_for_their_field_are_refused(field, value, bits):
    fields = dict.fromkeys(("operation", "identifier", "stag", "tagged_offset", "data", "mask"), 0)
    with pytest.raises(ValueError, match=f"{bits} bits are possible"):
        AtomicRequest(**{**fields, field: value})


@pytest.mark.parametrize(
    ("name", "opcode", "msn", "payload"),
    [
        (
            "Atomic Request FetchAdd",
            Opcode.ATOMIC_REQUEST,
            1,
            AtomicRequest(FETCH_ADD, 0x01020304, 0xAABBCCDD, 0x1008, 1, 0),
        ),
        (
            "Atomic Request CmpSwap",
            Opcode.ATOMIC_REQUEST,
            2,
            AtomicRequest(
                CMP_SWAP, 0x01020305, 0xAABBCCDD, 0x1010, 0x1122334455667788, WORD, 0, WORD
            ),
        ),
        ("Atomic Response", Opcode.ATOMIC_RESPONSE, 1, AtomicResponse(0x01020304, 0xFF)),
    ],
)
def test_vectors_of_atomics(name, opcode, msn, payload):
    header = UntaggedHeader(QUEUE_OF[opcode], msn, rsvd_ulp=control_octet(opcode))
    assert (header.encode() + payload.encode()).hex() == vector("fpdu", name)["ulpdus_hex"][0]
    assert type(payload).decode(payload_of(name)) == payload


@pytest.mark.parametrize(
    ("name", "opcode", "msn"),
    [
        ("Immediate Data", Opcode.IMMEDIATE_DATA, 3),
        ("Immediate Data with SE", Opcode.IMMEDIATE_DATA_WITH_SE, 4),
    ],
)
def test_vectors_of_immediate_data(name, opcode, msn):
    header = UntaggedHeader(0, msn, rsvd_ulp=control_octet(opcode))
    assert ddp.decode(bytes.fromhex(vector("fpdu", name)["ulpdus_hex"][0])) == (
        header,
        bytes(range(1, 9)),
    )
