"""What the short benchmark holds the device to."""

import sys

import pytest

from bench import __main__ as command
from bench import measure
from bench.catalogue import FIGURES, RATIOS
from bench.floors import FLOORS, SHORT_KEYS, read_floors, shortened
from bench.many_qps import PATTERNS, figure_key
from bench.required import MANY_QPS, REQUIRED

MET = "write_0_rx_cycles_per_message"
REACHED = "send_8_rx_cycles_per_message"


def test_floors_of_the_repository_are_good():
    assert set(read_floors(FLOORS.read_text())) == set(REQUIRED)


LINE_RATE = {
    *(
        f"{name}_{direction}_1460{markers}_payload_octets_per_cycle"
        for name in ("write", "read_response", "send")
        for direction in ("tx", "rx")
        for markers in ("", "_markers")
    ),
    "duplex_1460_payload_octets_per_cycle",
    "write_tx_8960_payload_octets_per_cycle",
    "write_rx_8960_payload_octets_per_cycle",
    "write_0_tx_cycles_per_message",
    "write_0_rx_cycles_per_message",
    "write_64_rx_cycles_per_message",
    "send_8_rx_cycles_per_message",
    "send_8_tx_cycles_per_message",
    "write_64_tx_cycles_per_message",
    "read_8_responder_cycles_per_message",
    "qps_64_write_tx_1460_ratio_to_one_qp",
    "qps_64_write_rx_1460_ratio_to_one_qp",
    "latency_rx_last_octet_to_first_write_cycles",
    "latency_rx_last_write_response_to_cqe_write_cycles",
    "latency_doorbell_to_first_fpdu_octet_cycles",
}
"""What line rate means; no change may take one of them out of what CI looks at."""


def test_short_run_has_every_figure_of_the_line_rate():
    assert set(SHORT_KEYS) >= LINE_RATE
    assert set(SHORT_KEYS) <= set(REQUIRED) & {*FIGURES, *RATIOS}


def test_short_run_has_the_patterns_with_64_qps():
    short = {figure_key(pattern, 64) for pattern in PATTERNS}
    assert short == set(SHORT_KEYS) & MANY_QPS.keys()


def test_large_messages_are_fewer_and_small_ones_as_many():
    for name in {*SHORT_KEYS} - {*RATIOS}:
        case = FIGURES[name].case
        long, short = (each.options for each in (case, shortened(case)))
        if "latency" in name:
            assert short == long | {"messages": 50}
        elif "payload_octets" in name:
            assert short == long | {"messages": long["messages"] // 4}
        else:
            assert short == long


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
        options = case.options
        octets = 7950 if options["emss"] == 8960 else 7700 if options["markers"] else 7800
        good = {"octets": octets, "messages": 1000, "cycles": 1000}
        if "duplex" in case.module:
            return good | {"octets": 15_000}
        if "latency" in case.module:
            return good | {"cycles": 300 if case.check == "check_doorbell" else 10}
        if options["octets"] > 64:
            return good
        received = options.get("operation") == "send" and case.check == "check_receive"
        received = received and options["qps"] == 1
        return good | {"cycles": 1000 * cycles_of_sends if received else 11_500}

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
