"""The delays of an SDF file are read whole, or what is wrong with it is named."""

import pytest

from stagecoach.hw.placer.delays import Delays, NotSdf
from tests.hw.placer.sdf import SDF


@pytest.fixture
def read(tmp_path):
    def of(text):
        path = tmp_path / "delays.sdf"
        path.write_text(text)
        return Delays.read(path)

    return of


def test_the_slowest_of_each_delay_is_read_in_ns(read):
    delays = read(SDF)
    assert delays.wires == {
        "sum_LUT4_Z/A": ("first_TRELLIS_FF_Q/Q", 1.0),
        "second_TRELLIS_FF_Q/DI": ("sum_LUT4_Z/F", 0.5),
        "sum_LUT4_Z/B": ("$PACKER_VCC/Y", 90.0),
        "first_TRELLIS_FF_Q/CE": ("sum_LUT4_Z/F", 0.002),
    }
    assert delays.through == {
        "sum_LUT4_Z/F": [("sum_LUT4_Z/A", 0.2), ("sum_LUT4_Z/B", 0.2)],
        "first_TRELLIS_FF_Q/Q": [("first_TRELLIS_FF_Q/CLK", 0.3)],
    }
    # Of the two times of a check, the first one is the setup time.
    assert delays.setup == {"first_TRELLIS_FF_Q/CE": 0.04, "second_TRELLIS_FF_Q/DI": 0.0}


def test_a_file_without_cells_has_no_delays(read):
    assert read("(DELAYFILE\n)\n") == Delays()


@pytest.mark.parametrize("text", ["", "{}", "\0"])
def test_other_files_are_refused(read, text):
    with pytest.raises(NotSdf, match=r"delays\.sdf is not an SDF file"):
        read(text)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(NotSdf, match=r"nothing: .*No such file"):
        Delays.read(tmp_path / "nothing")
    (tmp_path / "octets").write_bytes(b"(DELAYFILE\n\xff\n)\n")
    with pytest.raises(NotSdf, match=r"octets: .*utf-8"):
        Delays.read(tmp_path / "octets")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("(1:1:500)", "(1:1)", r"9: delay '\(1:1\)'; allowed: \(minimum:typical:maximum\) in ps"),
        ("(1:1:500)", "(1:1:x)", r"9: delay"),
        ("(200:250:300)", "(:)", r"29: delay"),
        ("(0:0:40)", "()", r"32: delay"),
        ("sum_LUT4_Z/A", "sum_LUT4_Z", r"8: pin 'sum_LUT4_Z'; allowed: cell/port"),
        ("first_TRELLIS_FF_Q/Q", "first", r"8: pin 'first'; allowed: cell/port"),
    ],
)
def test_a_delay_or_pin_that_is_none_is_named(read, before, after, message):
    assert before in SDF
    with pytest.raises(NotSdf, match=rf"delays\.sdf, line {message}"):
        read(SDF.replace(before, after, 1))


@pytest.mark.parametrize("lines", [1, 2, 8, 21, 35, SDF.count("\n") - 1])
def test_a_file_that_is_cut_off_is_refused(read, lines):
    with pytest.raises(NotSdf, match="cut off: it has no closing parenthesis"):
        read("".join(SDF.splitlines(keepends=True)[:lines]))
