"""What comes of cases: passed, failed, a fault of the peer that is tried again, not run."""

import json
import signal
from contextlib import contextmanager

import pytest

from tools.interop import __main__ as command
from tools.interop import judge as judging
from tools.interop.errors import InteropError
from tools.interop.image import Image
from tools.interop.job import JobError
from tools.interop.judge import FAILED, NOT_RUN, PASSED, PEER_FAULT, RETRIES, Judge, Row
from tools.interop.lab import GATEWARE, OWN, SOCKETS, Way
from tools.interop.plan import Case, plan, selected
from tools.interop.report import Run, other_run, page

VERSIONS = {"linux": "6.1.192-2", "qemu": "7.2.22"}


class Linux:
    """A guest that captures nothing but names."""

    def __init__(self):
        self.closed = False

    @contextmanager
    def captured(self, network, path):
        path.write_text(network)
        yield

    def close(self):
        self.closed = True


def passes(lab):
    pass


def fails(lab):
    raise JobError("it ended\nwith status 1")


USER = Way(SOCKETS)


def case(name, do, way=USER):
    return Case("rping", name, way, do)


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """Runs cases; returns the rows and the guests. `fault`: of the peer, if one is seen."""

    def run(*cases, fault=None):
        monkeypatch.setattr(judging, "known_fault", lambda capture: fault)
        guests, rows = [], []

        def boot(joins):
            guests.append(Linux())
            return guests[-1]

        Judge(boot, tmp_path, tmp_path).run(cases, rows.append)
        return rows, guests

    return run


def test_a_guest_is_used_until_a_case_fails(judged, tmp_path):
    rows, guests = judged(case("a", passes), case("b", fails), case("c", passes))
    assert [row.result for row in rows] == [PASSED, FAILED, PASSED]
    assert rows[1].why == "it ended with status 1" and rows[1].capture.read_text() == "user"
    assert len(guests) == 2 and all(guest.closed for guest in guests)
    assert [path.name for path in tmp_path.glob("*.pcap")] == ["002.pcap"]


def test_a_fault_of_the_peer_is_tried_again_but_not_for_ever(judged):
    rows, _ = judged(case("a", fails), case("b", fails), fault="accept race")
    assert [row.result for row in rows] == [PEER_FAULT] * RETRIES + [FAILED] * 2
    assert rows[0].why == "accept race" and "status 1" in rows[-1].why


def test_what_did_not_run_is_a_failure():
    cases = [case("a", passes), case("b", passes), case("b", passes, Way(OWN, 0.001))]
    run = Run(cases, "27 November 2026", "abc1234", VERSIONS, full=False)
    run.rows = [Row(cases[0], PEER_FAULT, 1.0, "accept race"), Row(cases[0], PASSED, 2.04)]
    assert [row.case for row in run.failures] == cases[1:]
    found = run.as_json()
    assert (found["cases_planned"], found["cases_passed"], found["cases_not_run"]) == (3, 1, 2)
    assert found["peer_faults"] == 1
    assert found["cases"][-1] == {
        "peer": "Linux with siw",
        "versions": VERSIONS,
        "case": "rping: b",
        "transport": "device's TCP",
        "loss": 0.001,
        "result": NOT_RUN,
        "why": "",
        "seconds": 0.0,
    }


def test_the_page_has_a_line_for_each_case_and_a_column_for_each_way():
    cases = [case("a", passes), case("b", passes), case("b", passes, Way(OWN, 0.001))]
    run = Run(cases, "27 November 2026", "abc1234", VERSIONS, full=True, seconds=90.0)
    run.rows = [Row(cases[0], PASSED), Row(cases[1], PEER_FAULT, 1.0, "accept race")]
    run.rows += [Row(cases[1], PASSED), Row(cases[2], FAILED, 1.0, "no answer")]
    run.stopped = "QEMU has ended"
    text = page(run.as_json(), RETRIES)
    assert "`make interop ALL=1`, 27 November 2026, abc1234: 3 cases, 2 passed, 1 failed" in text
    assert "linux 6.1.192-2, qemu 7.2.22" in text
    assert "| case | host's TCP | device's TCP, 0.1% loss |" in text
    assert "| rping: a | passed |  |" in text and "| rping: b | passed | failed |" in text
    assert "* rping: b (host's TCP): peer fault: accept race" in text
    assert "* rping: b (device's TCP, 0.1% loss): failed: no answer" in text
    assert "* There was no guest for the rest: QEMU has ended" in text


def test_the_page_says_how_long_the_last_run_of_each_kind_took():
    cases = [case("a", passes)]
    usual = Run(cases, "26 November 2026", "abc1234", VERSIONS, full=False, seconds=660.0)
    usual.rows = [Row(cases[0], PASSED)]
    before = json.loads(json.dumps(usual.as_json()))
    assert before["other_run"] is None
    line = "`make interop`, 26 November 2026, abc1234: 1 cases, 1 passed, 0 failed, 0 did not run"
    full, again = (
        Run(cases, "27 November 2026", "def5678", VERSIONS, full=True, seconds=3600.0)
        for _ in range(2)
    )
    full.other = other_run(before, full=True)
    # A second one of its kind keeps what the first one kept.
    again.other = other_run(full.as_json(), full=True)
    for run in (full, again):
        text = page(run.as_json(), RETRIES)
        assert f"\n{line}, 0 faults of the peer; 11 minutes.\n" in text
        assert "`make interop ALL=1`, 27 November 2026, def5678" in text and "60 minutes" in text
    assert other_run({}, full=True) is None


def test_the_plan_names_each_case_once_and_is_large_enough():
    usual, full = plan(full=False), plan(full=True)
    labels = [each.label for each in full]
    assert len(set(labels)) == len(labels) > len(usual)
    assert {each.label for each in usual} < set(labels)
    assert len(usual) >= 60
    assert sum(each.way.transport == OWN for each in usual) >= 12
    assert {each.way.loss for each in usual} == {0.0, 0.001}
    for cases in (usual, full):
        assert {each.way.transport for each in cases} == {SOCKETS, OWN, GATEWARE}
    assert {each.subject for each in selected(usual, "nfs:")} == {"nfs"}


def test_without_a_guest_the_command_says_why(monkeypatch, capsys, tmp_path):
    results = tmp_path / "interop.json"
    monkeypatch.setattr(command, "RESULTS", results)
    monkeypatch.setattr(command, "_KEPT", tmp_path / "kept")
    monkeypatch.setattr(command, "_prepare", lambda cases: (None, VERSIONS))

    def boot(*_):
        raise InteropError("qemu-system-x86_64 ended: no memory")

    monkeypatch.setattr(command.Guest, "boot", boot)
    assert command.main([]) == 2
    assert "interop: qemu-system-x86_64 ended: no memory" in capsys.readouterr().err
    found = json.loads(results.read_text())
    assert found["cases_planned"] == found["cases_not_run"] == len(found["cases"])
    assert found["stopped"] == "qemu-system-x86_64 ended: no memory"
    assert command.main(["--document"]) == 2
    assert "has no case that passed" in capsys.readouterr().err


def test_commands_heed_ctrl_c_if_the_run_is_in_the_background(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "RESULTS", tmp_path / "none.json")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert command.main(["--document"]) == 2
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_cases_are_listed_and_an_unknown_one_is_refused(capsys):
    assert command.main(["--list", "--case", "nfs: Linux is the client, O_DIRECT"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    with pytest.raises(SystemExit):
        command.main(["--case", "no such"])
    assert "no case has 'no such' in its name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "built"), [("ib_send_lat", ["device"]), ("two guests", ["device", "nic"])]
)
def test_devices_are_built_before_a_case_runs(text, built, monkeypatch):
    seen = []
    monkeypatch.setattr(command, "run", lambda *_: "QEMU emulator version 7.2.22")
    monkeypatch.setattr(command, "image", lambda tell: Image(None, None, {"linux": "6.1"}))
    monkeypatch.setattr(command, "build_device", lambda progress: seen.append("device"))
    monkeypatch.setattr(command, "build_nic", lambda progress: seen.append("nic"))
    cases = selected(plan(full=True), text)
    assert command._prepare(cases)[1] == {"linux": "6.1", "qemu": "7.2.22"}
    assert seen == built
