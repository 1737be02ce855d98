"""The figures that there are, and what is required of them."""

import importlib.util
import re
from pathlib import Path

import pytest

from bench.catalogue import (
    FIGURES,
    Case,
    cycles_per_message,
    full_segment,
    octets_per_cycle,
    transmit,
)
from bench.limits import beats
from bench.limits import octets_per_cycle as limit
from bench.measure import KEYS
from bench.required import REQUIRED, Requirement, Sense
from bench.table import complain


def test_every_required_figure_is_measured():
    assert set(REQUIRED) <= set(KEYS)


def test_every_case_has_its_check():
    for key, figure in FIGURES.items():
        found = importlib.util.find_spec(f"bench.{figure.case.module}")
        assert found is not None and found.origin is not None, key
        assert f"async def {figure.case.check}(" in Path(found.origin).read_text(), key


def test_name_of_a_figure_says_what_it_is():
    assert {key.removesuffix("_per_op")[-6:] for key in FIGURES} <= {
        "_cycle",
        "cycles",
        "essage",
    }
    for key, figure in FIGURES.items():
        if key.endswith("_payload_octets_per_cycle"):
            assert figure.value is octets_per_cycle, key
        if key.endswith("_cycles_per_message"):
            assert figure.value is cycles_per_message, key
        assert figure.case.options["markers"] == ("markers" in key), key
        assert (figure.case.options["qps"] == 64) == key.startswith(("qps_64", "atomic")), key
        assert (figure.case.options["emss"] == 8960) == ("8960" in key), key


@pytest.mark.parametrize(
    "operation, emss, markers, octets",
    # RFC 5044, 4.5; RFC 5041, 4.2 and 4.3: 1460 - 2 - 4 - 14, with three Markers 12 less.
    [
        ("write", 1460, False, 1440),
        ("read", 1460, False, 1440),
        ("send", 1460, False, 1436),
        ("write", 1460, True, 1428),
        ("write", 8960, False, 8940),
    ],
)
def test_full_segment(operation, emss, markers, octets):
    assert full_segment(operation, emss, markers) == octets


def test_equal_cases_are_one_run():
    assert transmit("write", octets=8).identity == transmit("write", octets=8, qps=1).identity
    assert transmit("write", octets=8).identity != transmit("write", octets=9).identity
    assert Case("a", "b").identity != Case("a", "c").identity


def test_figures_of_a_result():
    result = {"octets": 1000, "messages": 10, "cycles": 125}
    assert octets_per_cycle(result) == 8.0
    assert cycles_per_message(result) == 12.5


def test_required_value_itself_is_met():
    assert Requirement(Sense.AT_LEAST, 7.7).met(7.7)
    assert not Requirement(Sense.AT_LEAST, 7.7).met(7.699)
    assert Requirement(Sense.AT_MOST, 12).met(12)
    assert not Requirement(Sense.AT_MOST, 12).met(12.01)
    assert str(Requirement(Sense.AT_MOST, 12)) == "at most 12"


def test_limits_are_those_of_the_port():
    """FPDUs in octets: 1460 = 2 + 14 + 1440 + 4; 84 = 2 + 14 + 64 + 4; 36 = 2 + 18 + 12 + 4."""
    assert limit("write") == round(1440 / 183, 3)
    assert limit("send") == round(1436 / 183, 3)
    assert limit("write", emss=8960) == round(8940 / 1120, 3)
    assert (beats("write", 0), beats("write", 64), beats("send", 12)) == (3, 11, 5)
    # A Marker at 0, 512 and 1024, then none before 1536: 1448 octets and 3 Markers, or 2.
    assert beats("write", 1428, markers=True) == 183
    assert 182 * 7 < beats("write", 1428, markers=True, messages=7) < 183 * 7


def test_no_figure_of_the_page_is_beyond_its_limit():
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\d,.]+) \| .* \| ([\d.]*) \| met \|$", page, re.MULTILINE)
    assert {key for key, _, _ in rows} == REQUIRED.keys()
    for key, figure, shown in rows:
        assert REQUIRED[key].within(float(figure.replace(",", ""))), key
        assert shown == REQUIRED[key].limit_text, key


def test_a_figure_beyond_its_limit_is_an_error(capsys):
    key = "write_tx_1460_payload_octets_per_cycle"
    assert complain({key: 7.88}, REQUIRED, {})
    assert capsys.readouterr().err == f"bench: {key} is 7.88; the protocol allows 7.869\n"
    assert not complain({key: 7.869}, REQUIRED, {})
