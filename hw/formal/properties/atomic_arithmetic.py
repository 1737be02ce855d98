"""AtomicArithmetic against the pseudo-code of RFC 7306, which is in Verilog beside this file."""

from pathlib import Path

from stagecoach.gateware.rdmap.atomic.arithmetic import LATENCY, AtomicArithmetic
from stagecoach.hw.formal.harness import TOP, Model
from stagecoach.hw.formal.property import UNROLLED, Mutation, Property
from stagecoach.hw.rtlil import export

SOURCES = ("atomic_arithmetic.sv", "rfc7306_atomics.sv")
VALUES = ("operation", "original", "data", "mask", "compare", "compare_mask")


def _property(name: str, check: str, old: str, new: str, covered: int = 0) -> Property:
    def build() -> Model:
        files = {name: (Path(__file__).parent / name).read_text() for name in SOURCES}
        return Model(
            files={"dut.il": export(AtomicArithmetic(), "dut"), **files},
            script=(
                "read_rtlil dut.il",
                f"read -define {check}",
                f"read -formal {SOURCES[0]}",
                f"prep -flatten -top {TOP}",
                # Without it z3 takes minutes for the loops over 64 bits.
                "opt -full",
            ),
            values=(*VALUES, "result", "expected", "writes"),
        )

    module = "stagecoach.gateware.rdmap.atomic.arithmetic"
    return Property(
        block="rdmap.atomic.arithmetic.AtomicArithmetic",
        name=name,
        build=build,
        mutations=(Mutation(module, old, new),),
        depth=LATENCY + 2,
        covered=covered,
        engine=UNROLLED,
    )


PROPERTIES = (
    _property(
        "FetchAdd is RFC 7306, 5.1.1",
        "CHECK_FETCH_ADD",
        "given.data & ~given.mask & ~compares",  # a carry crosses fields
        "given.data & ~compares",
    ),
    _property(
        "Swap is the draft's 5.1.2",
        "CHECK_SWAP",
        "~swaps.replicate(64)",
        "~(swaps.replicate(64) >> 1)",
    ),
    _property(
        "CmpSwap is RFC 7306, 5.1.2",
        "CHECK_CMP_SWAP",
        "range(0, 64, 8)",  # one byte is not compared
        "range(0, 56, 8)",
    ),
    _property(
        "other AOpCodes change nothing",
        "CHECK_OTHER",
        "always.eq(adds | swaps)",
        "always.eq(~compares)",
    ),
    _property(
        "memory is written by every operation but a CmpSwap that does not match",
        "CHECK_WRITES",
        "matching & ~differs.any()",
        "matching",
        covered=LATENCY + 2,
    ),
)
