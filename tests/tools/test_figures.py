"""The pictures of the manual: the files are what the code draws, and lines that do not fit fail."""

import xml.etree.ElementTree as ElementTree

import pytest

from stagecoach.gateware.ddp.headers import TAGGED_HEADER, UNTAGGED_HEADER
from stagecoach.hw.interface.wire import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS
from tools.figures.catalogue import FOLDER, PICTURES
from tools.figures.frame import header_fields
from tools.figures.qp_states import steps
from tools.figures.rings import ENTRIES, WRITTEN, places
from tools.figures.svg import Drawing


@pytest.mark.parametrize("name", PICTURES)
def test_the_file_is_what_the_code_draws(name):
    drawn = PICTURES[name]()
    assert (FOLDER / f"{name}.svg").read_text() == drawn, "`make figures` draws it anew"
    assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"


def test_what_does_not_fit_is_refused():
    d = Drawing(100, 100, "A small one")
    with pytest.raises(ValueError, match="does not fit the picture"):
        d.text(95, 20, "beyond the edge")
    with pytest.raises(ValueError, match="does not fit a box 50 wide"):
        d.box(10, 10, 50, 30, "none", "a long name")
    with pytest.raises(ValueError, match="does not fit a field 50 wide"):
        d.cell(10, 10, 50, 30, "none", "a long name")


def test_headers_have_the_lengths_of_the_rfc():
    for layout, octets in (
        (TAGGED_HEADER, TAGGED_HEADER_OCTETS),
        (UNTAGGED_HEADER, UNTAGGED_HEADER_OCTETS),
    ):
        assert sum(length for _, length, _ in header_fields(layout)) == octets


def test_a_place_has_the_phase_of_the_entry_that_is_there():
    found = places()
    assert [number for number, _ in found] == [8, 9, 10, 3, 4, 5, 6, 7]
    assert all(phase == (number < ENTRIES) for number, phase in found)
    assert found[WRITTEN % ENTRIES][1] == 1  # its next entry will have 0


def test_a_qp_is_connected_from_init_alone_and_fails_from_init_or_rts():
    found = steps()
    assert [move for move, words in found.items() if "CONNECT" in words] == [("INIT", "RTS")]
    failing = {move for move, words in found.items() if "an error" in words}
    assert failing == {("INIT", "ERROR"), ("RTS", "ERROR")}
