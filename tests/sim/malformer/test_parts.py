"""The parts of the malformer: cases that repeat, mutations that mutate, failures made smaller."""

import random
from dataclasses import replace

import pytest

from stagecoach.sim.capture.connections import read_connections
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.malformer import bench, chunk
from stagecoach.sim.malformer.case import Case, make_case
from stagecoach.sim.malformer.compare import Observed, possible_terminates
from stagecoach.sim.malformer.fields import fields_of
from stagecoach.sim.malformer.mutations import MUTATIONS
from stagecoach.sim.malformer.report import Report
from stagecoach.sim.malformer.rows import NO_ERROR, TERMINATE_RECEIVED, row_of
from stagecoach.sim.malformer.shrink import shrink
from stagecoach.sim.malformer.soak import chunk_sizes, decode_plan, encode_plan
from stagecoach.sim.malformer.traffic import Traffic
from stagecoach.sim.model import ddp
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.predict import predict

SEED = 7


def test_a_case_is_a_function_of_seed_and_number():
    assert make_case(SEED, 5) == make_case(SEED, 5)
    assert make_case(SEED, 5).octets == make_case(SEED, 5).octets
    assert make_case(SEED, 5).octets != make_case(SEED + 1, 5).octets
    assert eval(repr(make_case(SEED, 5)), _names()) == make_case(SEED, 5)


def _names() -> dict[str, object]:
    from stagecoach.sim.malformer import case, fpdu, setting

    return vars(fpdu) | vars(setting) | vars(case)


def _traffic_is_valid(rng: random.Random) -> None:
    for number in range(150):
        case = make_case(SEED, number)
        # Without RFC 7306 the traffic has a few of its messages, which end the stream.
        setting = replace(case.setting, rfc7306=True)
        segments = Traffic(setting, case.layout, rng).messages()
        fpdus = tuple(replace(case.fpdus[0], **_plain(segment.ulpdu)) for segment in segments)
        valid = replace(case, setting=setting, fpdus=fpdus)
        assert row_of(valid.prediction) in (NO_ERROR, TERMINATE_RECEIVED), valid
        assert valid.prediction.accepted <= len(valid.octets)


def test_traffic_is_valid_before_it_is_mutated():
    _traffic_is_valid(seeded_random())


def test_traffic_of_a_seed_with_an_atomic_request_is_valid():
    _traffic_is_valid(random.Random("982071906:"))


def _plain(ulpdu: bytes) -> dict[str, object]:
    return {"ulpdu": ulpdu, "claimed": None, "pad": None, "edits": (), "crc_mask": 0}


def test_every_mutation_occurs():
    missing = {"MSN", "TO", "SrcSTag", "HdrCt", "FPDUPTR", "PAD", "swap", "Marker removed"}
    missing |= {"garbage", "drop", "duplicate", "one more message", "end of the stream", "bit"}
    found = set[str]()
    for number in range(8000):
        found |= {name for fpdu in make_case(1, number).fpdus for name in fpdu.mutations}
        if missing <= found and len(found) > 2 * len(MUTATIONS):
            return
    assert not missing - found


@pytest.mark.parametrize(
    "header",
    [
        TaggedHeader(0x12345678, 0x1122334455667788, rsvd_ulp=0x5A, reserved=0x14),
        UntaggedHeader(1, 2, 3, False, 0x43, 0xCAFE),
    ],
    ids=["tagged", "untagged"],
)
def test_fields_are_where_the_headers_have_them(header: ddp.Header):
    octets = header.encode()
    values = {field.name: field.read(octets) for field in fields_of(octets)}
    assert (values["DV"], values["L"]) == (header.version, header.last)
    if isinstance(header, TaggedHeader):
        assert (values["STag"], values["TO"]) == (header.stag, header.tagged_offset)
    else:
        assert (values["QN"], values["MSN"], values["MO"]) == (header.qn, header.msn, header.mo)
    for field in fields_of(octets):
        changed = field.write(octets, field.read(octets) ^ 1)
        assert changed != octets
        assert field.write(changed, values[field.name]) == octets


def test_a_failure_is_made_smaller_and_leaves_a_capture(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
):
    """With a device that never says what a wrong MSN is."""
    case = next(
        found
        for found in (make_case(SEED, number) for number in range(500))
        if row_of(found.prediction) == "MSN not expected" and len(found.fpdus) > 3
    )

    def differences(smaller: Case, observed: Observed) -> list[str]:
        return ["no MSN"] if row_of(smaller.prediction) == "MSN not expected" else []

    monkeypatch.setattr(chunk, "differences", differences)
    monkeypatch.setattr(chunk, "CAPTURES", tmp_path_factory.mktemp("captures"))
    text = chunk.reproduce(case)
    assert "no MSN" in text
    smallest = eval(text.splitlines()[1], _names())
    assert len(smallest.fpdus) <= 2 < len(case.fpdus)
    assert row_of(smallest.prediction) == "MSN not expected"
    (capture,) = chunk.CAPTURES.iterdir()
    (connection,) = read_connections(capture)
    assert smallest.octets in [
        connection.stream(direction) for direction in type(connection.chunks[0].direction)
    ]


def test_shrinking_ends_when_nothing_smaller_fails():
    case = make_case(SEED, 3)
    assert shrink(case, lambda _: False) == case
    tries = []
    shrink(case, lambda smaller: bool(tries.append(smaller)) or True, tries=5)
    assert len(tries) == 5


def test_a_device_that_does_something_else_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """The prediction of another setting stands for it."""

    def other(self: Case) -> object:
        return predict(replace(self.setting.state(self.layout), receives=(), ird=0), self.octets)

    monkeypatch.setattr(Case, "prediction", property(other))
    monkeypatch.setattr(bench, "PATIENCE", 2.0)
    report = chunk.run_chunk(SEED, 0, 40)
    assert report.failures
    assert f"seed {SEED}, case " in report.failures[0]


def test_soaking_is_divided_into_chunks():
    assert chunk_sizes(1) == [1]
    assert sum(chunk_sizes(1_000_001)) == 1_000_001
    assert decode_plan(encode_plan(5, [1, 2])) == (5, [1, 2])


def test_reports_add_up_and_survive_json():
    one, other = Report(cases=1, mutated=2), Report(cases=3, failures=["x"])
    one.mutations["bit"] += 2
    other.rows["no error"] += 1
    one.add(Report.from_dict(other.to_dict()))
    assert (one.cases, one.mutated, one.failures) == (4, 2, ["x"])
    assert (one.mutations["bit"], one.rows["no error"]) == (2, 1)


def test_what_a_late_answer_fails_with_may_leave_out_ignored_fields():
    """Found by chance: the Send after this Atomic Request may invalidate its STag before it."""
    case = make_case(20261, 2002420)
    request = next(fpdu.ulpdu for fpdu in case.fpdus if fpdu.mutations)
    assert request[2:6] == bytes.fromhex("24444264")
    # 0/1/00, M and D, ULPDU_Length 70, then the DDP header (RFC 5040, 4.8).
    told = bytes.fromhex("0100c0000046") + request[:2] + bytes(4) + request[6:18]
    possible = [terminate.encode() for terminate in possible_terminates(case)]
    assert told in possible
    assert bytes.fromhex("0100c0000046") + request[:18] in possible
