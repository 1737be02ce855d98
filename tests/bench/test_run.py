"""Cases that run beside each other: each once; a failure comes when its case is asked for."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench import run
from bench.catalogue import Case
from stagecoach.sim.cosim.runner import CocotbFailure

CASES = [Case("receive_cases", "check_receive", {"octets": octets}) for octets in range(4)]
LAST = CASES[3]


@pytest.fixture
def ran(monkeypatch):
    """The cases that ran, in threads instead of processes; two run before the first one ends."""
    names = []
    both = threading.Barrier(2, timeout=10)

    def one(case, simulator):
        names.append(case.options["octets"])
        if case in CASES[:2]:
            both.wait()
        if case is LAST:
            raise CocotbFailure("it failed")
        return {"cycles": case.options["octets"]}

    monkeypatch.setattr(run, "_run", one)
    monkeypatch.setattr(run, "_results", {})
    monkeypatch.setattr(run, "ProcessPoolExecutor", lambda jobs, context: ThreadPoolExecutor(jobs))
    return names


def test_two_run_at_once_and_each_once(ran):
    with run.running_ahead([*CASES, CASES[0]], 2):
        assert [run.run_case(case)["cycles"] for case in CASES[:3]] == [0, 1, 2]
        with pytest.raises(CocotbFailure, match="it failed"):
            run.run_case(LAST)
    assert run.run_case(CASES[0]) == {"cycles": 0}
    with run.running_ahead(CASES[:3], 2):
        assert run.run_case(CASES[2]) == {"cycles": 2}
    assert sorted(ran) == [0, 1, 2, 3]


def test_with_one_job_a_case_runs_when_it_is_asked_for(ran):
    with run.running_ahead(CASES[2:], 1):
        assert not ran
        assert run.run_case(CASES[2]) == {"cycles": 2}
    assert ran == [2]


def test_a_failure_comes_whole_out_of_another_process():
    failure = CocotbFailure("it failed", {"check_receive": "why"})
    again = pickle.loads(pickle.dumps(failure))
    assert (str(again), again.checks) == (str(failure), failure.checks)
