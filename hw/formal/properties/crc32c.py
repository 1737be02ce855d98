"""The CRC of the deframer is CRC32c: the sums of its netlist are those of the polynomial.

The register is followed bit by bit as RFC 3720, 12.1 does it, the bits of a byte from the least
significant one on. The gateware keeps it reflected. `deframer` says what goes into it, and when.
"""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.mpa.crc32c import INITIAL_STATE, RESIDUE, RESIDUE_AND_ZEROS, next_state
from stagecoach.hw.formal.harness import TOP, Model
from stagecoach.hw.formal.linear import NoSumError, sums
from stagecoach.hw.formal.paths import Netlist
from stagecoach.hw.formal.property import Mutation, Property
from stagecoach.hw.rtlil import export

GENERATOR = 0x1EDC6F41
"""RFC 3720, 12.1, without the highest coefficient."""

BITS = 32
WIDTHS = (8, 32, 64)
ONES = (1 << BITS) - 1


class _Steps(wiring.Component):
    """One step for each width of a word."""

    def __init__(self) -> None:
        after = {f"after_{width}": Out(BITS) for width in WIDTHS}
        super().__init__({"state": In(BITS), "word": In(max(WIDTHS)), **after})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for width in WIDTHS:
            m.d.comb += getattr(self, f"after_{width}").eq(
                next_state(self.state, self.word[:width])
            )
        return m


def _model() -> Model:
    return Model(
        files={"steps.il": export(_Steps(), TOP)},
        script=("read_rtlil steps.il", f"hierarchy -top {TOP}", "proc", "flatten"),
    )


def _step(state: list[int], word: list[int]) -> list[int]:
    """The register, reflected, after the bits of a word; sums as numbers, a bit for each input."""
    register = state[::-1]  # register[0] is the coefficient of x^0
    for bit in word:
        out = register[-1] ^ bit
        register = [0, *register[:-1]]
        register = [
            each ^ (out if GENERATOR >> power & 1 else 0) for power, each in enumerate(register)
        ]
    return register[::-1]


def _value(forms: list[int], inputs: int) -> int:
    """What sums come to for values of the inputs."""
    return sum((form & inputs).bit_count() % 2 << place for place, form in enumerate(forms))


def _is_one_to_one(forms: list[int]) -> bool:
    """Whether no two values of the inputs give the same sums."""
    rows = list(forms)
    rank = 0
    while rows:
        row = rows.pop()
        if row:
            rank += 1
            low = row & -row
            rows = [each ^ row if each & low else each for each in rows]
    return rank == BITS


def _wrong(netlist: Netlist) -> list[str]:
    state = [1 << place for place in range(BITS)]
    word = [1 << BITS + place for place in range(max(WIDTHS))]
    inputs = dict(zip(netlist.bits("state"), state, strict=True))
    inputs |= dict(zip(netlist.bits("word"), word, strict=True))
    wrong = []
    for width in WIDTHS:
        try:
            if sums(netlist, f"after_{width}", inputs) != _step(state, word[:width]):
                wrong.append(f"step of {width} bits")
        except NoSumError as error:
            wrong.append(str(error))

    # The CRC field is the complement of the register if and only if RESIDUE follows it: a step of
    # 32 bits depends on the sum of register and word alone, and no two sums end in the same one.
    step = _step(state, word[:BITS])
    alone = [form & ONES for form in step]
    if [form >> BITS for form in step] != alone or not _is_one_to_one(alone):
        wrong.append("another CRC field may leave the same register")
    if _value(alone, ONES) != RESIDUE:
        wrong.append("residue")
    # A word with zeros after its 32 bits is a step of 32 bits, and 32 zeros.
    zeros = _step(state, [0] * BITS)
    if _step(step, [0] * BITS) != _step(state, [*word[:BITS], *[0] * BITS]):
        wrong.append("zeros")
    if not _is_one_to_one(zeros) or _value(zeros, RESIDUE) != RESIDUE_AND_ZEROS:
        wrong.append("residue and zeros")
    if INITIAL_STATE != ONES:
        wrong.append("initial register")
    return wrong


MODULE = "stagecoach.gateware.mpa.crc32c"

PROPERTIES = (
    Property(
        "mpa.deframer.Deframer",
        "a step of its CRC is CRC32c; the residue is that of data with its own CRC, and no other",
        _model,
        mutations=(
            Mutation(MODULE, "(CRC32C_POLYNOMIAL if", "(CRC32C_POLYNOMIAL ^ 1 if"),
            Mutation(MODULE, "word_part(word) ^ state_part(state, len(word))", "word_part(word)"),
            Mutation(MODULE, "RESIDUE = _shift(INITIAL_STATE, STATE_BITS)", "RESIDUE = 0"),
            Mutation(MODULE, "_shift(RESIDUE, 32)", "_shift(RESIDUE, 31)"),
            Mutation(MODULE, "INITIAL_STATE = 0xFFFFFFFF", "INITIAL_STATE = 0"),
        ),
        netlist=_wrong,
    ),
)
