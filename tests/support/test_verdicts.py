"""One simulation gives each of its checks a verdict of its own."""

from dataclasses import dataclass

import cocotb
import pytest

from stagecoach.sim.cosim.streams import start_clock_and_reset
from tests.support.runner import CocotbFailure, parameter
from tests.support.test_runner import Buffer
from tests.support.verdicts import each_check, shows, simulate


@dataclass(frozen=True)
class Case:
    name: str
    shows: tuple[str, ...]


CASES = (Case("one", ("MPA-3-03",)), Case("two", ()))


@shows("MPA-3-01")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_good(dut):
    await start_clock_and_reset(dut)


@shows("MPA-3-01", "MPA-3-02")
@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(case=[cocotb.Param(case, case.name) for case in CASES])
async def check_case(dut, case):
    await start_clock_and_reset(dut)
    assert case.name == "one", f"{case.name} with {parameter('PATTERN')}"


def test_each_check_has_its_own_verdict(tmp_path_factory):
    for pattern in ("always", "random"):
        verdicts = simulate(
            *(tmp_path_factory, Buffer(), __name__, pattern, ["always", "random"]),
            quick=True,
            test_filter="check_",
        )
        verdicts.require("check_good")
        verdicts.require("check_case/case=one")
        with pytest.raises(CocotbFailure, match=f"check_case/case=two: two with {pattern}"):
            verdicts.require("check_case/case=two")


def test_a_simulation_without_verdicts_fails_every_check(tmp_path_factory):
    options = {"test_filter": "no_such_check", "quick": True}
    verdicts = simulate(tmp_path_factory, Buffer(), "tests.support.test_runner", "x", [], **options)
    with pytest.raises(CocotbFailure, match="no cocotb test"):
        verdicts.require("check_good")


def test_each_check_names_its_rows():
    parameters = each_check(globals()).args[1]
    named = {each.values[0]: [id for mark in each.marks for id in mark.args] for each in parameters}
    assert named == {
        "check_good": ["MPA-3-01"],
        "check_case/case=one": ["MPA-3-01", "MPA-3-02", "MPA-3-03"],
        "check_case/case=two": ["MPA-3-01", "MPA-3-02"],
    }
    (left,) = each_check(globals(), but="good|two").args[1]
    assert left.values == ("check_case/case=one",)
