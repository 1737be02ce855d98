"""What the short benchmark holds the device to."""

import sys

import pytest

from bench import __main__ as command
from bench import measure
from bench.catalogue import FIGURES, RATIOS
from bench.floors import FLOORS, MANY_QPS, SHORT_KEYS, read_floors, shortened
from bench.required import REQUIRED

MET = "write_0_rx_cycles_per_message"
REACHED = "send_8_rx_cycles_per_message"


def test_floors_of_the_repository_are_good():
    assert set(read_floors(FLOORS.read_text())) == set(REQUIRED)


def test_every_short_figure_is_required_and_of_a_case():
    assert set(SHORT_KEYS) <= set(REQUIRED) & {*FIGURES, *RATIOS}


def test_short_cases_are_shorter():
    for key in {*SHORT_KEYS} - {*RATIOS}:
        case = FIGURES[key].case
        long, short = (each.options for each in (case, shortened(case)))
        if long["qps"] >= MANY_QPS:
            assert short == long
            continue
        assert short["octets"] * short["messages"] <= long["octets"] * long["messages"] / 4 or (
            not long["octets"] and short["messages"] == long["messages"] // 5
        )


def test_what_is_reached_takes_the_place_of_what_is_required():
    floors = read_floors(f"[{REACHED}]\nrequired = 12\nreached = 80\n")
    assert floors[REACHED].met(80) and not floors[REACHED].met(80.1)
    assert not REQUIRED[REACHED].met(80)
    assert floors[MET] == REQUIRED[MET]


@pytest.mark.parametrize(
    "text, message",
    [
        ("[write_1_tx]\nrequired = 1\nreached = 2", "nothing is required of 'write_1_tx'"),
        (f"[{MET}]\nrequired = 11\nreached = 20", "has required 11; allowed: 12"),
        (f"[{MET}]\nrequired = 12\nreached = 12", "has reached 12, which meets at most 12"),
        (f"[{MET}]\nrequired = 12", r"has \['required'\]; allowed: required and reached"),
    ],
)
def test_floors_that_cannot_be_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_floors(text)


def short(monkeypatch, tmp_path, cycles_of_sends):
    def run_case(case):
        good = {"octets": 7900, "messages": 1000, "cycles": 1000}
        if "latency" in case.module:
            return good | {"cycles": 1}
        if case.options.get("operation") == "send" and case.check == "check_receive":
            if case.options["octets"] == 8:
                return good | {"cycles": 1000 * cycles_of_sends}
        return good

    floors = tmp_path / "floors.toml"
    floors.write_text(f"[{REACHED}]\nrequired = 12\nreached = 80\n")
    monkeypatch.setattr(command, "FLOORS", floors)
    monkeypatch.setattr(measure, "run_case", run_case)
    monkeypatch.setattr(sys, "argv", ["bench", "--short"])
    monkeypatch.chdir(tmp_path)
    return command.main()


def test_short_run_passes_at_the_floor(monkeypatch, tmp_path, capsys):
    assert short(monkeypatch, tmp_path, 79) == 0
    assert "reached 80" in capsys.readouterr().out
    assert not (tmp_path / "build").exists()


def test_short_run_fails_below_the_floor(monkeypatch, tmp_path, capsys):
    assert short(monkeypatch, tmp_path, 81) == 1
    assert f"bench: {REACHED} is 81; required: at most 80" in capsys.readouterr().err


def test_short_run_says_when_a_floor_has_become_the_requirement(monkeypatch, tmp_path, capsys):
    assert short(monkeypatch, tmp_path, 11) == 0
    assert "floors.toml can go" in capsys.readouterr().out
