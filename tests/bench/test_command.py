"""The command line of the benchmarks."""

import json
import sys

import pytest

from bench import __main__ as command
from bench import measure
from stagecoach.host_driver.errors import WaitTimeout
from stagecoach.hw.files import write_results
from stagecoach.sim.cosim.runner import CocotbFailure

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
    assert error.startswith("bench: no figure 'write_1_tx'; the nearest of ")
    assert error.count("\n") == 1 and "write_0_tx_cycles_per_message" in error
    assert len(error) < 300


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
            return {"octets": 7800, "messages": 1000, "cycles": 1000}
        return CocotbFailure("stalled")

    assert run(monkeypatch, results, "--only", KEY, OTHER) == 1
    output = capsys.readouterr()
    assert f"bench: {KEY}: stalled" in output.err
    assert "7.8" in output.out and OTHER not in output.err


def test_keys_come_in_the_order_of_the_table():
    assert measure.select([KEY, OTHER]) == [OTHER, KEY]
    assert measure.select([]) == list(measure.KEYS)


ALL = {
    "octets": 7900,
    "messages": 1000,
    "cycles": 1000,
    "last_cycles": 1000,
    "cycles_simulated": 10**9,
    "seconds": 1.0,
    "fpdus": 1,
    "fpdu_octets": 1,
}


@pytest.fixture
def quick(monkeypatch, folder):
    """Without the figures that are of no case; the page is not written but counted."""
    pages = []
    monkeypatch.setattr(measure.nfs, "measure", lambda key: dict.fromkeys(measure.nfs.KEYS, 3))
    monkeypatch.setattr(measure.tcp, "measure", lambda key: dict.fromkeys(measure.tcp.KEYS, 7))
    monkeypatch.setattr(
        measure, "_speed_figures", lambda key, known: dict.fromkeys(measure.speed.KEYS, 1e6)
    )
    monkeypatch.setattr(command, "write_document", lambda *results: pages.append(results))
    (folder / "build").mkdir()
    return pages


def test_whole_run_leaves_results_and_a_page(monkeypatch, capsys, folder, quick):
    run(monkeypatch, lambda options: ALL)
    assert set(json.loads((folder / "build/bench.json").read_text())) == set(measure.KEYS)
    assert not (folder / "build/bench.partial").exists()
    assert len(quick) == 1
    assert run(monkeypatch, None, "--document") == 0
    assert quick[0] == quick[1]


def test_figures_are_measured_again_in_place_of_the_last(monkeypatch, capsys, folder, quick):
    assert run(monkeypatch, None, "--again", KEY) == 2
    assert "was not measured: run `make bench` first" in capsys.readouterr().err
    run(monkeypatch, lambda options: ALL)
    before = json.loads((folder / "build/bench.json").read_text())
    run(monkeypatch, lambda options: ALL | {"cycles": 7000, "last_cycles": 7000}, "--again", KEY)
    after = json.loads((folder / "build/bench.json").read_text())
    assert {key for key in after if after[key] != before[key]} == {KEY}
    assert after[KEY] == 7.0
    assert [page[0] for page in quick] == [before, after]


def test_a_ratio_is_measured_again_with_its_parts():
    assert measure.with_ratios([KEY]) == [KEY]
    for part in ("qps_64_write_tx_1460_payload_octets_per_cycle", OTHER):
        assert "qps_64_write_tx_1460_ratio_to_one_qp" in measure.with_ratios([part])
    assert measure.with_ratios(["sim_cycles_per_second"]) == list(measure.speed.KEYS)


def test_a_figure_that_fails_leaves_the_page_as_it_was(monkeypatch, capsys, folder, quick):
    def results(options):
        return WaitTimeout("nothing came") if options["markers"] else ALL

    assert run(monkeypatch, results) == 1
    key = "write_tx_1460_markers_payload_octets_per_cycle"
    assert f"bench: {key}: nothing came" in capsys.readouterr().err
    assert not quick
    assert run(monkeypatch, None, "--document") == 2
    assert f"bench: {key} was not measured: run" in capsys.readouterr().err


def test_curves_of_another_run_do_not_come_to_new_figures(monkeypatch, capsys, folder, quick):
    run(monkeypatch, lambda options: ALL)
    monkeypatch.setattr(command, "write_results", fails_to_write_curves)
    assert run(monkeypatch, lambda options: ALL) == 1
    assert run(monkeypatch, None, "--document") == 2
    assert "write_tx at 0 was not measured" in capsys.readouterr().err
    assert len(quick) == 1


def fails_to_write_curves(path, results):
    if path == command.CURVES:
        raise OSError("no space left")
    write_results(path, results)


def test_a_run_that_is_interrupted_leaves_the_results_of_the_one_before(monkeypatch, folder, quick):
    before = folder / "build/bench.json"
    before.write_text("{}")

    def results(options):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, results)
    assert before.read_text() == "{}"


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("bench.json", '{"write', "build/bench.json cannot be read"),
        ("bench.json", "{}", "write_tx_1460_payload_octets_per_cycle was not measured"),
        ("performance.json", "{}", "write_tx at 0 was not measured"),
    ],
)
def test_a_document_of_half_a_run_is_refused(
    monkeypatch, capsys, folder, quick, name, text, message
):
    run(monkeypatch, lambda options: ALL)
    (folder / "build" / name).write_text(text)
    capsys.readouterr()
    assert run(monkeypatch, None, "--document") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"bench: {message}") and error.count("\n") == 1
    assert len(quick) == 1


def test_a_document_of_nothing_is_refused_in_one_line(monkeypatch, capsys):
    assert run(monkeypatch, None, "--document") == 2
    error = capsys.readouterr().err
    assert error.startswith("bench: write_tx_1460") and error.count("\n") == 1
    assert "was not measured: run `make bench` first" in error
