"""`make scaling` keeps what was measured before, and what was measured before an error."""

import json

import pytest

from bench import scaling
from stagecoach.hw.nextpnr import ToolError

OLD = {
    "by_qps": {"8": {"lut4": 800, "ff": 64, "dp16kd": 1, "fmax_mhz": 170.0}},
    "by_data_width_bits": {
        "32": {"lut4": 6400, "ff": 32, "dp16kd": 1, "fmax_mhz": 150.0},
        "64": {"lut4": 6400, "ff": 64, "dp16kd": 1, "fmax_mhz": 160.0},
        "128": {"lut4": 9999, "ff": 128, "dp16kd": 1, "fmax_mhz": 140.0},
    },
}


@pytest.fixture
def area(tmp_path, monkeypatch):
    """What `make scaling` has written, in files of this test alone."""
    monkeypatch.setattr(scaling, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(scaling, "AREA", tmp_path / "figures" / "area.json")
    monkeypatch.setattr(scaling, "RESULT", tmp_path / "scaling.json")
    scaling.FIGURES.mkdir()
    scaling.AREA.write_text(json.dumps(OLD))
    return scaling.AREA


def measure(config, part, seeds, *_):
    """Stands for a measurement."""
    found = {"lut4": 100 * config.qps, "ff": config.data_width, "dp16kd": 1}
    return found | ({"fmax_mhz": {str(seed): 100.0 for seed in seeds}} if seeds else {})


def run(monkeypatch, *arguments, measure=measure):
    monkeypatch.setattr(scaling, "measure", measure)
    monkeypatch.setattr("sys.argv", ["scaling", "--jobs", "1", *arguments])
    return scaling.main()


def known(path):
    return json.loads(path.read_text())


def test_area_alone_keeps_other_rows_and_the_clock_of_the_same_device(area, monkeypatch):
    assert run(monkeypatch, "--area", "--qps", "--widths", "64", "128") == 0
    found = known(area)
    assert found["by_qps"] == OLD["by_qps"]
    widths = found["by_data_width_bits"]
    assert list(widths) == ["32", "64", "128"]
    assert widths["32"] == OLD["by_data_width_bits"]["32"]
    assert widths["64"] == OLD["by_data_width_bits"]["64"]
    # Another device than before: its clock is not known.
    assert widths["128"] == {"lut4": 6400, "ff": 128, "dp16kd": 1}
    assert known(scaling.RESULT) == found
    assert (area.parent / "area_by_data_width_bits.svg").exists()


def test_rows_are_in_the_order_of_their_numbers(area, monkeypatch):
    assert run(monkeypatch, "--qps", "128", "2", "16", "--widths") == 0
    rows = known(area)["by_qps"]
    assert list(rows) == ["2", "8", "16", "128"]
    assert rows["2"] == {"lut4": 200, "ff": 64, "dp16kd": 1, "fmax_mhz": 100.0}


@pytest.mark.parametrize("error", [ToolError("does not fit"), KeyboardInterrupt()])
def test_what_was_measured_before_an_error_is_kept(area, monkeypatch, capsys, error):
    def fails(config, *arguments):
        if config.qps == 128:
            raise error
        return measure(config, *arguments)

    arguments = ("--qps", "16", "64", "128", "--widths", "32", "64")
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            run(monkeypatch, *arguments, measure=fails)
    else:
        assert run(monkeypatch, *arguments, measure=fails) == 1
        assert "does not fit" in capsys.readouterr().err
    found = known(area)
    assert list(found["by_qps"]) == ["8", "16", "64"]
    assert found["by_qps"]["64"] == found["by_data_width_bits"]["64"]
    assert found["by_data_width_bits"]["64"]["fmax_mhz"] == 100.0


def test_a_device_is_written_when_it_is_done(area, monkeypatch):
    seen = []

    def looks(config, *arguments):
        seen.append(len(known(area)["by_qps"]))
        return measure(config, *arguments)

    assert run(monkeypatch, "--qps", "16", "32", "64", "--widths", measure=looks) == 0
    assert seen == [1, 2, 3]


def test_results_that_cannot_be_read_are_told_before_anything_is_measured(
    area, monkeypatch, capsys
):
    area.write_text('{"by_qps": {')
    assert run(monkeypatch, measure=lambda *_: pytest.fail("was measured")) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("scaling: ") and "area.json cannot be read" in line
    assert area.read_text() == '{"by_qps": {'


def test_jobs_are_one_or_more(area, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, "--jobs", "0", measure=lambda *_: pytest.fail("was measured"))
    assert "--jobs: invalid number '0' (expected 1 or more)" in capsys.readouterr().err
