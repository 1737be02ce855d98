"""Moving bytes between the lanes of a data word."""

from amaranth.hdl import Cat, Mux, Value

from stagecoach.gateware.config import WORD_OCTETS


def rotate_lanes(word: Value, lanes: Value) -> Value:
    """Return `word` with byte i moved to lane (i + lanes) mod 8."""
    for bit in range(len(lanes)):
        word = Mux(lanes[bit], word.rotate_left(8 << bit), word)
    return word


def lanes_below(lane: Value) -> Value:
    """Return one bit per lane: 1 for those below `lane`."""
    return Cat(number < lane for number in range(WORD_OCTETS))


def choose_lanes(choice: Value, ones: Value, zeros: Value) -> Value:
    """Return byte i of `ones` where bit i of `choice` is 1, else byte i of `zeros`."""
    return Cat(
        Mux(choice[lane], ones.word_select(lane, 8), zeros.word_select(lane, 8))
        for lane in range(WORD_OCTETS)
    )
