"""`stagecoach top`: what it shows of a program's devices, and that nothing is read without it."""

import io
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.console import Console

from stagecoach.cli.main import main
from stagecoach.cli.top.command import Devices
from stagecoach.cli.top.rates import view
from stagecoach.cli.top.screen import quantity, screen
from stagecoach.host_driver import CQ, PD, QP, Context, QPInitAttr, registers
from stagecoach.host_driver.counters import (
    CounterWord,
    QPCounters,
    query_lost,
    query_qp,
    query_stops,
)
from stagecoach.host_driver.errors import DeviceError
from stagecoach.host_driver.snapshots.folder import FOLDER_VARIABLE
from stagecoach.host_driver.snapshots.publisher import INTERVAL_VARIABLE, Publisher
from stagecoach.hw.interface.causes import Cause
from tests.host_driver.fake_device import INIT, QPS, RTS, FakeDevice

ROOT = Path(__file__).parents[2]


class CountingDevice(FakeDevice):
    """A fake device that has counters.

    Attributes
    ----------
    counters: value by (counter, index). queries: how many were read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words[registers.CAPABILITIES.address] |= registers.CAPABILITIES.pack(counters=1)
        self.counters: dict[tuple[int, int], int] = {}
        self.queries = 0

    def write_register(self, address: int, value: int) -> None:
        super().write_register(address, value)
        if address == registers.COUNTER_SELECT.address:
            selected = registers.COUNTER_SELECT.unpack(value)
            count = self.counters.get((selected["counter"], selected["index"]), 0)
            self.words[registers.COUNTER_LOW.address] = count & 0xFFFFFFFF
            self.words[registers.COUNTER_HIGH.address] = count >> 32
            self.queries += 1


@pytest.fixture
def device():
    return CountingDevice()


def test_counters_of_a_qp_are_read_with_their_high_bits(device):
    for word in CounterWord:
        device.counters[word, 2] = (word << 32) + 100 + word
    device.states[2] = RTS
    with Context(device) as context:
        device.states[2] = RTS  # what was there has been cleared
        counters = query_qp(context, 2).counters
        device.states[2] = 0
    assert asdict(counters) == {
        word.name.lower(): (word << 32) + 100 + word for word in CounterWord if word != 7
    }


def test_a_qp_that_does_not_run_waits_for_no_read(device):
    device.counters[CounterWord.OUTSTANDING_READS, 0] = 3
    with Context(device) as context:
        assert query_qp(context, 0).counters == QPCounters()


def test_an_answer_that_nobody_asked_for_is_no_outstanding_read(device):
    device.counters[CounterWord.OUTSTANDING_READS, 0] = (1 << 36) - 1
    with Context(device) as context:
        device.states[0] = RTS
        assert query_qp(context, 0).counters.outstanding_reads == 0
        device.states[0] = 0


def test_stops_are_told_by_cause(device):
    device.counters[CounterWord.STOPPED, Cause.CRC_ERROR] = 2
    device.counters[CounterWord.STOPPED, Cause.NONE] = 7
    device.words[registers.COUNTER_LOST.address] = 9
    with Context(device) as context:
        assert query_stops(context) == {Cause.NONE: 7, Cause.CRC_ERROR: 2}
        assert query_lost(context) == 9


def test_number_of_a_qp_that_is_not_there_is_refused(device):
    with Context(device) as context:
        with pytest.raises(ValueError, match=f"QP {QPS}; allowed: 0 to {QPS - 1}"):
            query_qp(context, QPS)


def test_device_without_counters_says_so():
    with Context(FakeDevice()) as context:
        assert not context.attr.counters
        for query in (lambda: query_qp(context, 0), lambda: query_stops(context)):
            with pytest.raises(DeviceError, match="without counters"):
                query()


def test_nothing_is_read_if_nobody_looks(device, monkeypatch):
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    with Context(device):
        pass
    assert device.queries == 0


def test_a_device_tells_its_state_when_it_opens_and_closes(device, monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(INTERVAL_VARIABLE, "3600")
    with Context(device) as context:
        (path,) = tmp_path.glob("*.json")
        assert json.loads(path.read_text())["open"]
        cq = CQ(context)
        qp = QP(PD(context), QPInitAttr(cq, cq))
        device.counters[CounterWord.OCTETS_SENT, qp.qp_num] = 1000
        assert device.states[qp.qp_num] == INIT
    last = json.loads(path.read_text())
    assert not last["open"]
    assert last["total"]["octets_sent"] == 1000
    assert [(one["qp"], one["state"]) for one in last["qps"]] == [(0, "INIT")]
    assert last["opened"]["total"]["octets_sent"] == 0


def test_a_look_reads_what_may_have_changed(device, monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(INTERVAL_VARIABLE, "3600")
    device.counters[CounterWord.STOPPED, Cause.TAGGED_BOUNDS] = 1  # of a QP that came and went
    with Context(device) as context:
        assert device.queries <= 1
        cq = CQ(context)
        qp = QP(PD(context), QPInitAttr(cq, cq))
        device.causes[qp.qp_num] = Cause.CRC_ERROR
        device.counters[CounterWord.STOPPED, Cause.CRC_ERROR] = 3
        context._observers[0]._publish(is_open=True)
        assert device.queries <= 1 + 7 + 2
        (path,) = tmp_path.glob("*.json")
        assert json.loads(path.read_text())["stopped"] == {"CRC_ERROR": 3}
        device.causes[qp.qp_num] = Cause.NONE
    assert json.loads(path.read_text())["stopped"] == {"CRC_ERROR": 3, "TAGGED_BOUNDS": 1}


def test_what_others_did_before_is_no_rate(device, monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(INTERVAL_VARIABLE, "3600")
    device.words[registers.FPDUS_SENT.address] = 9
    device.counters[CounterWord.OCTETS_SENT, 3] = 1000
    with Context(device):
        pass
    (path,) = tmp_path.glob("*.json")
    last = json.loads(path.read_text())
    assert last["total"]["octets_sent"] == last["opened"]["total"]["octets_sent"] == 1000
    assert view(last["opened"], last).rates["octets_sent"] == 0


def test_a_device_tells_its_state_while_it_is_open(device, monkeypatch, tmp_path):
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    with Context(device) as context:
        publisher = Publisher(context, tmp_path, 0.01)
        before = publisher.path.stat().st_mtime_ns
        for _ in range(1000):
            if publisher.path.stat().st_mtime_ns != before:
                break
            publisher._closing.wait(0.01)
        else:
            pytest.fail("nothing new in 10 s")
        publisher.close()
        publisher.close()  # the second time nothing happens


def snapshot_of(time, cycles, sent, **other):
    qp = {"qp": 0, "state": "RTS", "cause": "NONE", **asdict(QPCounters(octets_sent=sent))}
    about = {"device": "1.0", "kind": "test", "program": "a program", "open": True}
    rest = {
        "counters": True,
        "dropped_fpdus": 0,
        "stopped": {},
        "events_not_counted": 0,
        "events_lost": 0,
    }
    total = asdict(QPCounters(octets_sent=sent))
    return {**about, "time": time, "cycles": cycles, "total": total, "qps": [qp], **rest, **other}


def test_rates_are_those_between_two_snapshots():
    seen = view(snapshot_of(10.0, 1000, 500), snapshot_of(12.0, 5000, 2500))
    assert seen.rates["octets_sent"] == seen.qp_rates[0]["octets_sent"] == 1000
    assert seen.cycles_per_second == 2000
    found = seen.as_json()
    assert found["qps"][0]["octets_sent_per_second"] == 1000
    assert found["total"]["octets_sent"] == 2500


def test_rates_go_on_when_a_counter_begins_anew():
    seen = view(snapshot_of(1.0, 0, (1 << 36) - 100), snapshot_of(2.0, 0, 200))
    assert seen.rates["octets_sent"] == 300


def test_screen_names_reasons():
    reasons = {"stopped": {"CRC_ERROR": 2}, "dropped_fpdus": 3, "events_not_counted": 4}
    reasons["events_lost"] = 5
    seen = view(snapshot_of(1.0, 0, 0), snapshot_of(2.0, 100, 5_000_000, **reasons))
    console = Console(width=100, file=io.StringIO())
    console.print(screen([seen]))
    text = console.file.getvalue()
    for words in ("device 1.0", "RTS", "5M", "2 stopped: MPA CRC error (CRC_ERROR)"):
        assert words in text
    assert "3 FPDUs dropped" in text and "4 events or more" in text
    assert "5 events lost" in text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (999.6, "1k"),
        (1234, "1.23k"),
        (45_600_000, "45.6M"),
        (2e15, "2e+03T"),
    ],
)
def test_quantities_have_units(number, text):
    assert quantity(number) == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["top", "--device", "simulation"], "--device without COMMAND; allowed: only with --"),
        (
            ["top", "--device", "board", "--", "true"],
            "device is 'board'; allowed: simulation, sim://",
        ),
        (["top", "--interval", "0", "--", "true"], "'0' seconds; allowed: 0.05 to 3600"),
    ],
)
def test_bad_options_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit) as ending:
        main(arguments)
    assert ending.value.code == 2
    assert message in capsys.readouterr().err


def test_program_that_is_not_there_is_named(capsys):
    assert main(["top", "--", "no-such-program"]) == 1
    assert "cannot run 'no-such-program'" in capsys.readouterr().err


def test_nothing_to_look_at_is_told(monkeypatch, capsys):
    monkeypatch.setenv(FOLDER_VARIABLE, "/no/such/folder")
    assert main(["top"]) == 1
    wanted = f"{FOLDER_VARIABLE} is '/no/such/folder'; allowed without COMMAND"
    assert wanted in capsys.readouterr().err


def test_without_a_command_all_open_devices_are_shown(device, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(INTERVAL_VARIABLE, "3600")
    with Context(CountingDevice()):
        pass  # closed before anybody looks
    with Context(device) as context:
        (path,) = (one for one in tmp_path.glob("*.json") if json.loads(one.read_text())["open"])
        killed = json.loads(path.read_text()) | {"device": "of a process that was killed"}
        (tmp_path / "999999999-0.json").write_text(json.dumps(killed))
        (tmp_path / "something else.json").write_text("not of a device")
        assert main(["top", "--once", "--json"]) == 0
    (shown,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert shown["open"] and shown["device"] == f"{os.getpid()}.{path.stem.rpartition('-')[2]}"
    assert context.attr.counters


@pytest.mark.parametrize("name", ["0", "nfs"])
def test_a_file_of_a_program_that_has_ended_is_named_only_where_ended_ones_count(name, tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, there = (tmp_path / f"{process}-{name}.json" for process in (ended.pid, os.getpid()))
    for path in (left, there):
        path.write_text("{}")
    for closed, named in ((False, {there.name}), (True, {left.name, there.name})):
        devices = Devices(tmp_path, closed)
        assert devices.look() == []
        assert set(devices.unread) == named


def test_a_device_without_counters_is_shown_with_its_states(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(INTERVAL_VARIABLE, "3600")
    with Context(FakeDevice()) as context:
        cq = CQ(context)
        _qp = QP(PD(context), QPInitAttr(cq, cq))
        context.process_events()
        Publisher(context, tmp_path, 3600).close()
        (path,) = (
            one for one in tmp_path.glob("*.json") if not json.loads(one.read_text())["open"]
        )
    last = json.loads(path.read_text())
    assert (last["counters"], last["total"]) == (False, {})
    assert [(one["qp"], one["state"]) for one in last["qps"]] == [(0, "INIT")]
    seen = view(last["opened"], last)
    console = Console(width=100, file=io.StringIO())
    console.print(screen([seen]))
    assert "INIT" in console.file.getvalue()
    assert "was built without counters (COUNTERS=0)" in console.file.getvalue()
    assert seen.as_json()["qps"] == last["qps"]


def test_the_program_is_told_of_the_device(capfd):
    code = "import os; print(os.environ['STAGECOACH_DEVICE'])"
    device = "serial:///dev/ttyUSB7?baud=9600"
    assert main(["top", "--once", "--device", device, "--", sys.executable, "-c", code]) == 0
    assert f"{device}\n" in capfd.readouterr().err


def test_the_program_ends_if_nobody_reads_what_is_shown(tmp_path):
    ended = tmp_path / "ended"
    program = (
        "import signal, sys, pathlib\n"
        f"def end(*_): pathlib.Path({str(ended)!r}).touch(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n" + PROGRAM.replace("range(10)", "range(1000)")
    )
    command = [
        sys.executable,
        "-m",
        "stagecoach.cli.main",
        "top",
        "--json",
        "--interval",
        "0.05",
    ]
    with subprocess.Popen(
        [*command, "--", sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["open"]
        process.stdout.close()
        assert process.wait(30) == 1
    assert ended.exists()


def test_exit_status_is_that_of_the_program(capfd):
    code = "import sys; print('said'); sys.exit(3)"
    assert main(["top", "--once", "--json", "--", sys.executable, "-c", code]) == 3
    out, err = capfd.readouterr()
    assert out == ""
    assert "said\n" in err and "opened no device" in err


PROGRAM = """
import time
from stagecoach.host_driver import CQ, PD, QP, Context, QPInitAttr
from tests.cli.test_top import CountingDevice, CounterWord
device = CountingDevice()
with Context(device) as context:
    cq = CQ(context)
    qp = QP(PD(context), QPInitAttr(cq, cq))
    for turn in range(10):
        device.counters[CounterWord.MESSAGES_SENT, 0] = turn
        time.sleep(0.1)
"""


def watch(*options):
    return main(["top", "--interval", "0.05", *options, "--", sys.executable, "-c", PROGRAM])


def test_json_follows_a_program_while_it_runs(capfd):
    assert watch("--json") == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert len(lines) > 3
    assert [line["open"] for line in lines] == [True] * (len(lines) - 1) + [False]
    sent = [line["total"]["messages_sent"] for line in lines]
    assert sent == sorted(sent) and sent[-1] == 9
    assert any(line["total"]["messages_sent_per_second"] > 0 for line in lines)
    assert all("opened" not in line for line in lines)


def test_the_view_stays_when_the_program_has_ended(capfd):
    assert watch() == 0
    out = capfd.readouterr().out
    assert "INIT" in out and "(fake, closed)" in out
