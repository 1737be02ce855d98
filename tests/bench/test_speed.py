"""How the figures of the simulators come together."""

import pytest

from bench import speed
from bench.measure import measure


@pytest.fixture
def runs(monkeypatch):
    """Which simulators ran."""
    made = []
    for name, key, value in (
        ("compiled", speed.COMPILED_KEYS[0], 300_000.0),
        ("icarus", speed.ICARUS_KEYS[0], 600.0),
        ("amaranth", speed.AMARANTH_KEYS[0], 200.0),
    ):

        def run(name=name, key=key, value=value):
            made.append(name)
            return {key: value} | ({speed.IDLE_KEY: 50.0} if name == "compiled" else {})

        monkeypatch.setattr(speed, f"measure_{name}", run)
    return made


def figures(*keys):
    found, failed = measure(keys, lambda key: None, lambda results: None)
    assert not failed
    return found


def test_ratios_are_of_one_run_of_each_simulator(runs):
    found = figures(speed.RATIO_KEY, speed.AMARANTH_RATIO_KEY)
    assert found == {speed.RATIO_KEY: 500, speed.AMARANTH_RATIO_KEY: 1500}
    assert runs == ["compiled", "icarus", "amaranth"]


def test_the_idle_device_is_measured_with_the_one_at_work(runs):
    assert figures(speed.COMPILED_KEYS[0], speed.IDLE_KEY)[speed.IDLE_KEY] == 50
    assert runs == ["compiled"]


def test_a_compiled_device_is_measured_in_a_process_of_its_own():
    found = speed.measure_compiled(writes=1)
    assert found.keys() == {*speed.COMPILED_KEYS, speed.IDLE_KEY}
    assert found["sim_fpdu_octets"] > speed.WRITE_OCTETS


def test_what_goes_wrong_in_that_process_is_told():
    with pytest.raises(RuntimeError, match="compiled device: TypeError: "):
        speed.measure_compiled(writes="many")


def test_a_ratio_runs_nothing_that_it_is_not_of(runs):
    figures(speed.AMARANTH_RATIO_KEY)
    assert runs == ["compiled", "amaranth"]


def test_no_ratio_without_icarus(monkeypatch, runs):
    monkeypatch.setattr(speed, "measure_icarus", dict)
    found, failed = measure([speed.RATIO_KEY], lambda key: None, lambda results: None)
    assert not found and list(failed) == [speed.RATIO_KEY]
