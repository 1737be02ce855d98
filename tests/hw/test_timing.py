"""What `build/timing.json` keeps, and which command lines `hw.timing` refuses."""

import json
import re
from pathlib import Path

import pytest

from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.hw import timing
from stagecoach.hw.nextpnr import DEFAULT_PART, PARTS, ToolError
from stagecoach.hw.synthesis import SYNTHESIS_OPTIONS
from stagecoach.hw.timing import CONFIGS, DESIGNS, ENTRIES, entry, record


def result(fmax, lut4=1, options=SYNTHESIS_OPTIONS, flow="now"):
    """What is measured with the Fmax of some seeds."""
    seeds = sorted(fmax, key=lambda seed: fmax[seed])
    return {
        "device": DEFAULT_PART.name,
        "synthesis_options": options,
        "flow": flow,
        "lut4": lut4,
        "ff": 2,
        "dp16kd": 3,
        "fmax_mhz": fmax,
        "fmax_median_mhz": fmax[seeds[len(seeds) // 2]],
        "critical_path": f"path of {seeds[len(seeds) // 2]}",
        "critical_paths": {seed: f"path of {seed}" for seed in fmax},
        "blocks": {},
    }


FIVE = result({"1": 141.0, "2": 160.0, "3": 127.0, "4": 144.0, "5": 150.0})


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "RESULT", tmp_path / "timing.json")
    monkeypatch.setattr(timing, "BLOCKS_RESULT", tmp_path / "timing_blocks.json")
    monkeypatch.setattr(timing, "BUILD", tmp_path)
    return tmp_path / "timing.json"


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["timing", *arguments])
    return timing.main()


def known(path):
    return json.loads(path.read_text())


def test_configurations_stand_beside_each_other(path):
    record(path, "default", FIVE)
    record(path, "small", result({"1": 60.0}))
    assert known(path) == FIVE | {"small": result({"1": 60.0})}
    # Nothing of another device is left.
    record(path, "default", {"lut4": 3})
    assert known(path) == {"lut4": 3, "small": result({"1": 60.0})}


def test_names_of_entries_are_no_figures():
    assert len(set(ENTRIES)) == len(ENTRIES) == len(CONFIGS) * len(PARTS) * 2 * (len(DESIGNS) + 1)
    assert all(name.isidentifier() for name in ENTRIES)
    assert not set(ENTRIES) & set(FIVE) and "speed_grade" not in ENTRIES


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--device", "45F"], "default_45F"),
        (["--abc9"], "default_abc9"),
        (["--config", "small"], "small"),
        (["--engine-dummy"], "default_engine_dummy"),
        (["--design", "engine", "--device", "45F"], "default_45F_engine"),
        (["--config", "small", "--device", "45F", "--abc9"], "small_45F_abc9"),
    ],
)
def test_other_parts_and_options_stand_beside_the_default(
    path, monkeypatch, capsys, arguments, name
):
    monkeypatch.setattr(
        timing,
        "measure",
        lambda config, part, seeds, jobs, options, *_: result({"1": 50.0}, options=options),
    )
    record(path, "default", FIVE)
    assert run(monkeypatch, *arguments) == 0
    found = known(path)
    assert found.pop(name)["fmax_mhz"] == {"1": 50.0}
    assert found == FIVE
    assert "beyond" not in capsys.readouterr().out
    assert run(monkeypatch) == 1  # the default's seed 1 alone; all others stay
    assert "beyond budgets.toml: median 50.00 MHz; at least" in capsys.readouterr().out
    assert known(path)["fmax_mhz"] == FIVE["fmax_mhz"] | {"1": 50.0} and name in known(path)


def test_seeds_and_median_beside_the_dummy_are_shown_with_its_cells(path, monkeypatch, capsys):
    beside = FIVE | {"engine_dummy": {"lut4": 19_900, "ff": 18_100, "dp16kd": 50}}
    monkeypatch.setattr(timing, "measure", lambda *_: beside)
    assert run(monkeypatch, "--engine-dummy") == 0
    out = capsys.readouterr().out
    for words in ("seed 3 .* 127.00 MHz", "median .* 144.00 MHz", "of the dummy .* 19900"):
        assert re.search(words, out), words
    assert known(path)["default_engine_dummy"] == beside


def test_the_default_stands_on_the_first_level():
    assert entry("default", DEFAULT_PART, SYNTHESIS_OPTIONS) == "default"


def test_fewer_seeds_of_the_same_netlist_are_added(path):
    record(path, "default", FIVE)
    record(path, "default", result({"1": 141.0}))
    assert known(path) == FIVE
    record(path, "default", result({"1": 170.0, "6": 171.0}))
    found = known(path)
    assert found["fmax_mhz"] == FIVE["fmax_mhz"] | {"1": 170.0, "6": 171.0}
    assert found["fmax_median_mhz"] == 155.0
    assert found["critical_path"] == "path of 2" == found["critical_paths"]["2"]
    # Of the same seeds the new ones count.
    record(path, "small", FIVE)
    record(path, "small", result({"1": 99.0}))
    record(path, "small", FIVE)
    assert known(path)["small"] == FIVE


@pytest.mark.parametrize("other", [{"lut4": 9}, {"options": ""}, {"flow": "before"}])
def test_another_netlist_or_flow_replaces_all_seeds(path, other):
    record(path, "default", FIVE)
    other = result({"1": 150.0}, **other)
    record(path, "default", other)
    assert known(path) == other


@pytest.mark.parametrize("arguments", [[], ["--block", "framer"], ["--blocks"]])
def test_results_that_cannot_be_read_are_told_before_anything_is_measured(
    path, monkeypatch, capsys, arguments
):
    for name in ("measure", "measure_blocks"):
        monkeypatch.setattr(timing, name, lambda *_: pytest.fail("was measured"))
    for file in (timing.RESULT, timing.BLOCKS_RESULT):
        file.write_text('{"lut4": ')
    assert run(monkeypatch, *arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("timing: ") and ".json cannot be read" in line


def test_blocks_of_another_flow_stand_beside_those_of_the_device(path, monkeypatch):
    row = {"fmax_mhz": 1000.0, "lut4": 1, "ff": 1, "dp16kd": 1, "critical_path": "a"}
    monkeypatch.setattr(timing, "measure_blocks", lambda *_: {"framer": row})
    assert run(monkeypatch, "--block", "framer") == 0
    assert run(monkeypatch, "--block", "framer", "--abc9") == 0
    assert known(timing.BLOCKS_RESULT) == {"framer": row, "framer_abc9": row}


@pytest.mark.slow
def test_a_small_block_alone_is_placed(tmp_path, monkeypatch):
    """What takes little of a part is where nextpnr's static placer does not converge."""
    monkeypatch.chdir(tmp_path)
    row = timing.measure_block(StreamFifo(32, 5), [1, 2], SYNTHESIS_OPTIONS)
    assert row["fmax_mhz"] > 100 and row["lut4"] > 0 and row["dp16kd"] == 0
    assert "levels of logic" in row["critical_path"]
    # What is placed is kept: each seed has its report.
    assert len(list(Path(row["netlist"]).glob("alone_*.json"))) == 2
    assert timing.measure_block(StreamFifo(32, 5), [1, 2], SYNTHESIS_OPTIONS) == row


def test_a_block_that_got_slower_is_told(path, monkeypatch, capsys):
    row = {"fmax_mhz": 1.0, "lut4": 1, "ff": 1, "dp16kd": 1, "critical_path": "a"}
    monkeypatch.setattr(timing, "measure_blocks", lambda *_: {"framer": row})
    assert run(monkeypatch, "--block", "framer") == 1
    assert "budgets.toml: framer: 1.00 MHz alone; " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "0"], "--jobs: invalid number '0' (expected 1 or more)"),
        (["--blocks", "--jobs", "-1"], "--jobs: invalid number '-1' (expected 1 or more)"),
        (["--seeds", "0"], "--seeds: invalid number '0' (expected 1 or more)"),
        (["--block", "framer", "--area"], "--block with --area; allowed: one of them"),
        (["--blocks", "--area"], "--blocks with --area; allowed: one of them"),
        (["--blocks", "--config", "default"], "--blocks with --config; allowed: one of them"),
        (["--block", "framer", "--device", "45F"], "--block with --device; allowed: one of them"),
        (["--block", "framer", "--blocks"], "--block with --blocks; allowed: one of them"),
        (["--blocks", "--engine-dummy"], "--blocks with --engine-dummy; allowed: one of them"),
        (["--blocks", "--design", "nic"], "--blocks with --design; allowed: one of them"),
        (["--area", "--seeds", "2"], "--area with --seeds; allowed: one of them"),
    ],
)
def test_options_that_would_be_ignored_are_refused(path, monkeypatch, capsys, arguments, message):
    for name in ("measure", "measure_blocks"):
        monkeypatch.setattr(timing, name, lambda *_: pytest.fail("was measured"))
    with pytest.raises(SystemExit) as error:
        run(monkeypatch, *arguments)
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_a_tool_that_fails_leaves_what_is_known(path, monkeypatch, capsys):
    def fail(*_):
        raise ToolError("nextpnr failed")

    monkeypatch.setattr(timing, "measure", fail)
    record(path, "default", FIVE)
    assert run(monkeypatch) == 1
    assert known(path) == FIVE and "nextpnr failed" in capsys.readouterr().err
