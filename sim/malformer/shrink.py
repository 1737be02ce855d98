"""Makes a failing case smaller, as long as it fails."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from stagecoach.sim.malformer.case import Case
from stagecoach.sim.malformer.fpdu import Fpdu
from stagecoach.sim.model import ddp

TRIES = 400


def _smaller_fpdus(case: Case) -> Iterator[tuple[Fpdu, ...]]:
    fpdus = case.fpdus
    half = len(fpdus) // 2
    if half:
        yield fpdus[:half]
        yield fpdus[half:]
    for number in range(len(fpdus)):
        yield fpdus[:number] + fpdus[number + 1 :]
    for number, fpdu in enumerate(fpdus):
        for smaller in _smaller(fpdu):
            yield (*fpdus[:number], smaller, *fpdus[number + 1 :])


def _smaller(fpdu: Fpdu) -> Iterator[Fpdu]:
    for number in range(len(fpdu.edits)):
        yield replace(fpdu, edits=fpdu.edits[:number] + fpdu.edits[number + 1 :])
    if fpdu.claimed is not None:
        yield replace(fpdu, claimed=None)
    if fpdu.pad is not None:
        yield replace(fpdu, pad=None)
    if fpdu.crc_mask:
        yield replace(fpdu, crc_mask=0)
    if not fpdu.ulpdu:
        return
    header = ddp.header_octets(fpdu.ulpdu[0])
    payload = fpdu.ulpdu[header:]
    for length in {0, 1, len(payload) // 2, len(payload) - 1}:
        if 0 <= length < len(payload):
            yield replace(fpdu, ulpdu=fpdu.ulpdu[:header] + payload[:length])
    if any(payload):
        yield replace(fpdu, ulpdu=fpdu.ulpdu[:header] + bytes(len(payload)))


def _smaller_cases(case: Case) -> Iterator[Case]:
    for fpdus in _smaller_fpdus(case):
        yield replace(case, fpdus=fpdus)
    setting = case.setting
    plain: dict[str, object] = {
        "markers_in": False,
        "markers_out": False,
        "own": False,
        "reads": setting.reads[:-1],
        "receives": setting.receives[:-1],
        "pieces": 1,
        "initiator": True,
        "half_close": True,
        "emss": 1460,
        "ird": 8,
        "crc": True,
    }
    for name, value in plain.items():
        if getattr(setting, name) != value:
            yield replace(case, setting=replace(setting, **{name: value}))  # type: ignore[arg-type]


def shrink(case: Case, fails: Callable[[Case], bool], tries: int = TRIES) -> Case:
    """The smallest case found that still fails, in at most `tries` runs."""
    left = tries
    progress = True
    while progress:
        progress = False
        for smaller in _smaller_cases(case):
            if not left:
                return case
            left -= 1
            if fails(smaller):
                case, progress = smaller, True
                break
    return case
