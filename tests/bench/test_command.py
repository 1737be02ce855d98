"""The command line of the benchmarks."""

import sys

import pytest

from bench import __main__ as command
from bench import measure
from sim.cosim.runner import CocotbFailure

KEY = "write_0_tx_cycles_per_message"
OTHER = "write_tx_1460_payload_octets_per_cycle"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(monkeypatch, results, *arguments):
    def run_case(case):
        found = results(case.options)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(measure, "run_case", run_case)
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    return command.main()


def test_unknown_name_is_refused_in_one_line(monkeypatch, capsys):
    assert run(monkeypatch, None, "--only", "write_1_tx") == 2
    error = capsys.readouterr().err
    assert error.startswith("bench: no figure 'write_1_tx'; allowed: ") and error.count("\n") == 1
    assert KEY in error


def test_only_what_is_named_is_measured_and_nothing_written(monkeypatch, capsys, folder):
    asked = []

    def results(options):
        asked.append(options["octets"])
        return {"octets": 0, "messages": 1000, "cycles": 12_000}

    assert run(monkeypatch, results, "--only", KEY) == 0
    assert asked == [0]
    assert KEY in capsys.readouterr().out
    assert not list(folder.iterdir())


def test_missed_figure_is_named_and_fails(monkeypatch, capsys):
    result = {"octets": 0, "messages": 1000, "cycles": 12_100}
    assert run(monkeypatch, lambda options: result, "--only", KEY) == 1
    assert f"{KEY} is 12.1; required: at most 12" in capsys.readouterr().err


def test_case_that_fails_does_not_stop_the_others(monkeypatch, capsys):
    def results(options):
        if options["octets"]:
            return {"octets": 7800, "messages": 1, "cycles": 1000}
        return CocotbFailure("stalled")

    assert run(monkeypatch, results, "--only", KEY, OTHER) == 1
    output = capsys.readouterr()
    assert f"bench: {KEY}: stalled" in output.err
    assert "7.8" in output.out and OTHER not in output.err


def test_keys_come_in_the_order_of_the_table():
    assert measure.select([KEY, OTHER]) == [OTHER, KEY]
    assert measure.select([]) == list(measure.KEYS)


def test_a_document_of_nothing_is_refused_in_one_line(monkeypatch, capsys):
    assert run(monkeypatch, None, "--document") == 2
    error = capsys.readouterr().err
    assert error == "bench: build/bench.json is missing: run `make bench` first\n"
