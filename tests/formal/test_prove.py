"""A proof fails for a block that is broken, with inputs that show it, and only then."""

import inspect
from dataclasses import replace

import pytest

from gateware.rdmap import atomic_arithmetic
from hw.formal.__main__ import PROOFS
from hw.formal.prove import ProofError, last_values, prove
from sim.model.atomics import cmp_swap, fetch_add

ARITHMETIC = {
    proof.check: proof
    for component, proof in PROOFS
    if component is atomic_arithmetic.AtomicArithmetic
}

# What is replaced in the source of the block, by what, and the property that this breaks
MUTATIONS = {
    "carry_crosses_fields": (
        "given.data & ~given.mask & ~compares",
        "given.data & ~compares",
        "CHECK_FETCH_ADD",
    ),
    "one_bit_is_not_compared": (
        "range(0, 64, 8)",
        "range(0, 56, 8)",
        "CHECK_CMP_SWAP",
    ),
    "swap_keeps_a_bit": (
        "~swaps.replicate(64)",
        "~(swaps.replicate(64) >> 1)",
        "CHECK_SWAP",
    ),
    "mask_of_another_operation": (
        "original & adds.replicate(64)",
        "original & swaps.replicate(64)",
        "CHECK_FETCH_ADD",
    ),
    "mismatch_is_written": ("matching & ~differs.any()", "matching", "CHECK_WRITES"),
}


def mutated(old, new):
    source = inspect.getsource(atomic_arithmetic)
    assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in the block"
    names = {"__name__": "mutant"}
    exec(compile(source.replace(old, new), "mutant", "exec"), names)
    return names["AtomicArithmetic"]()


def reference(values):
    original = values["original"]
    if values["operation"] == 0:
        return fetch_add(original, values["data"], values["mask"])
    if values["operation"] == 1:
        return values["data"]
    if values["operation"] == 2:
        given = (values[name] for name in ("data", "mask", "compare", "compare_mask"))
        return cmp_swap(original, *given)
    return original


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_broken_block_has_a_counterexample(mutation, tmp_path):
    old, new, check = MUTATIONS[mutation]
    outcome = prove(ARITHMETIC[check], mutated(old, new), tmp_path)
    assert outcome.status == "FAIL"
    values = outcome.counterexample
    assert list(values) == list(ARITHMETIC[check].values)
    assert values["expected"] == reference(values)
    if check == "CHECK_WRITES":
        assert values["operation"] == 2 and values["writes"]
        assert (values["compare"] ^ values["original"]) & values["compare_mask"]
    else:
        assert values["result"] != values["expected"]


def test_block_that_no_proof_fits_is_an_error(tmp_path):
    proof = replace(ARITHMETIC["CHECK_SWAP"], sources=("rfc7306_atomics.sv",))
    with pytest.raises(ProofError, match=r"sby ended with an error; see .*log\.txt"):
        prove(proof, atomic_arithmetic.AtomicArithmetic(), tmp_path)


def test_values_are_those_at_the_end_of_the_trace(tmp_path):
    trace = tmp_path / "trace.vcd"
    trace.write_text(
        "$scope module properties $end\n$var wire 4 ! data $end\n$var wire 1 # writes $end\n"
        "$scope module dut $end\n$var wire 4 % data $end\n$upscope $end\n$upscope $end\n"
        "$enddefinitions $end\n#0\nb0101 !\n1#\nb1111 %\n#10\nb1x10 !\n"
    )
    assert last_values(trace, ("writes", "data", "absent")) == {"writes": 1, "data": 0b1010}
