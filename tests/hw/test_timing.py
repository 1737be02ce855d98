"""What `build/timing.json` keeps."""

import json

import pytest

from hw.timing import CONFIGS, record


def test_configurations_stand_beside_each_other(tmp_path):
    path = tmp_path / "timing.json"
    record(path, "default", {"lut4": 1, "critical_path": "a"})
    record(path, "small", {"lut4": 2})
    assert json.loads(path.read_text()) == {
        "lut4": 1,
        "critical_path": "a",
        "small": {"lut4": 2},
    }
    # Nothing of an earlier run is left.
    record(path, "default", {"lut4": 3})
    assert json.loads(path.read_text()) == {"lut4": 3, "small": {"lut4": 2}}


@pytest.mark.parametrize("name", CONFIGS)
def test_names_of_configurations_are_no_figures(name):
    assert name.isidentifier() and name not in ("device", "lut4", "ff", "dp16kd", "fmax_mhz")
