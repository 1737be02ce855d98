"""One case: a setting and a malformed stream, made from a seed and a number."""

import random
from dataclasses import dataclass
from functools import cached_property

from stagecoach.sim.malformer.fpdu import Fpdu, assemble
from stagecoach.sim.malformer.layout import LANES, Layout, make_layout
from stagecoach.sim.malformer.mutations import Stream, mutate
from stagecoach.sim.malformer.setting import Setting, make_setting
from stagecoach.sim.malformer.traffic import Traffic
from stagecoach.sim.model import checks
from stagecoach.sim.model.predict import Prediction, predict

_MPA = {(check.error, check.source) for check in checks.MPA_ORDER}


@dataclass(frozen=True)
class Case:
    """What is sent to a QP in a setting; `number` tells which lane runs it."""

    seed: int
    number: int
    setting: Setting
    fpdus: tuple[Fpdu, ...]

    @property
    def lane(self) -> int:
        """The lane whose regions the stream names."""
        return self.number % LANES

    @cached_property
    def layout(self) -> Layout:
        """The regions of the lane."""
        return layout_of(self.seed, self.lane)

    @cached_property
    def _assembled(self) -> tuple[bytes, list[int]]:
        return assemble(self.fpdus, self.setting)

    @property
    def octets(self) -> bytes:
        """The stream."""
        return self._assembled[0]

    @cached_property
    def prediction(self) -> Prediction:
        """What the device has to do with it."""
        return predict(self.setting.state(self.layout), self.octets)

    def seen(self) -> list[Fpdu]:
        """The FPDUs that the device looked at: those up to the one in error."""
        accepted, failure = self.prediction.accepted, self.prediction.failure
        above_mpa = failure is not None and (failure.error, failure.source) not in _MPA
        return [
            fpdu
            for fpdu, start in zip(self.fpdus, self._assembled[1], strict=True)
            if start < accepted or (start == accepted and not above_mpa)
        ]

    def mutated(self) -> list[Fpdu]:
        """The mutated ones among them."""
        return [fpdu for fpdu in self.seen() if fpdu.mutations]


_layouts: dict[tuple[int, int], Layout] = {}


def layout_of(seed: int, lane: int) -> Layout:
    """The regions of a lane, made once."""
    if (seed, lane) not in _layouts:
        _layouts[seed, lane] = make_layout(seed, lane)
    return _layouts[seed, lane]


def make_case(seed: int, number: int) -> Case:
    """The case of a seed with a number."""
    rng = random.Random(f"case {seed} {number}")
    layout = layout_of(seed, number % LANES)
    setting = make_setting(rng, layout)
    segments = Traffic(setting, layout, rng).messages()
    stream = Stream([Fpdu(s.kind, s.ulpdu) for s in segments], setting, layout, rng)
    mutate(stream)
    return Case(seed, number, setting, tuple(stream.fpdus))
