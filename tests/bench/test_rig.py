"""The rig around the device: its size, and the slow QP."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from bench import rig
from bench.catalogue import FIGURES, receive
from bench.many_qps import NOT_SLOW, SLOW
from bench.receive_cases import troubles
from bench.rig import LATE_CYCLES, Bench
from bench.run import config_of
from stagecoach.gateware.config import RnicConfig
from stagecoach.host_driver.work_queue import WorkQueue

RING = 1 << 20
ENTRIES, ENTRY_OCTETS = 16, 64


@pytest.mark.parametrize(
    "qps, slow, device",
    [(1, None, 64), (63, NOT_SLOW, 64), (64, None, 64), (64, NOT_SLOW, 128), (256, None, 256)],
)
def test_device_has_as_many_qps_as_the_case_takes(qps, slow, device):
    assert config_of(receive("send", octets=8, qps=qps, slow=slow)) == RnicConfig(qps=device)


def test_all_cases_have_a_device():
    assert {config_of(figure.case).qps for figure in FIGURES.values()} == {64, 256}


class Qp:
    """A QP whose receive ring is at an address of its own."""

    numbers = 0

    def __init__(self, pd, attributes):
        self.number, Qp.numbers = Qp.numbers, Qp.numbers + 1
        self.attributes = attributes
        ring = SimpleNamespace(
            address=RING * (self.number + 1), entries=ENTRIES, entry_octets=ENTRY_OCTETS
        )
        receive = Mock(spec=WorkQueue)
        receive.ring = ring
        self._queues = SimpleNamespace(receive=receive)

    def connect(self, stream, **options):
        stream.attach(self.number)


class Device:
    """Writes down which windows are shut, and which reads are late."""

    def __init__(self):
        self.llp = self.axi = self
        self.shut, self.late = {}, []

    def attach(self, connection, send, emss, *, shut):
        self.shut[connection] = shut

    def delay(self, addresses, cycles):
        self.late.append((addresses, cycles))


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(Qp, "numbers", 0)
    monkeypatch.setattr(rig, "QP", Qp)
    monkeypatch.setattr(rig, "CQ", lambda context, entries: object())
    for name in ("Context", "PD", "MR"):
        monkeypatch.setattr(rig, name, lambda *arguments: None)

    def make(slow):
        device = Device()
        return Bench(device, 8, 1460, 3, slow=slow), device

    return make


def test_bench_has_no_slow_qp_unless_it_is_asked_for(made):
    bench, device = made(None)
    assert bench.slow is None and bench.at_work == bench.qps
    assert device.shut == {0: False, 1: False, 2: False} and not device.late


@pytest.mark.parametrize("slow", [NOT_SLOW, *SLOW])
def test_only_the_slow_qp_is_slow(made, slow):
    bench, device = made(slow)
    assert [qp.number for qp in bench.qps] == [0, 1, 2] and bench.slow.number == 3
    assert bench.at_work == ([] if slow == NOT_SLOW else [bench.slow]) + bench.qps
    assert device.shut == {0: False, 1: False, 2: False, 3: slow == "window_shut"}
    ring = range(4 * RING, 4 * RING + ENTRIES * ENTRY_OCTETS)
    assert device.late == ([(ring, LATE_CYCLES)] if slow == "receive_entries_late" else [])


def test_slow_qp_has_a_cq_of_its_own(made):
    bench, _ = made(NOT_SLOW)
    assert {qp.attributes.scq for qp in bench.qps} == {bench.cq}
    assert bench.slow.attributes.scq is bench.slow.attributes.rcq is not bench.cq


def test_what_arrives_at_a_slow_qp():
    (part,) = troubles("fpdu_incomplete", 1460, 20)
    length = 2 + int.from_bytes(part[:2], "big")
    assert len(part) % 4 == 0 and 8 < len(part) < length
    for slow in ("receive_queue_empty", "receive_entries_late"):
        sends = troubles(slow, 1460, 20)
        assert len(sends) == 20 and len(set(sends)) == 20
    assert troubles(NOT_SLOW, 1460, 20) == troubles("window_shut", 1460, 20) == []
