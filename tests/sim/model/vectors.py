"""Known-answer vectors: ``source`` ones are printed in the cited document, ``derived`` ones not."""

import json
from pathlib import Path
from typing import Any

import pytest

from stagecoach.sim.model import ddp

DATA = Path(__file__).resolve().parents[2] / "data"
_VECTORS = json.loads((DATA / "vectors.json").read_text())


def vectors(kind: str) -> list[Any]:
    """All vectors of a kind as pytest parameters, named and marked by their origin."""
    parameters = []
    for number, vector in enumerate(_VECTORS[kind]):
        name = vector.get("name", str(vector.get("emss", number)))
        origin = vector["origin"]
        parameters.append(pytest.param(vector, id=f"{origin}: {name}"))
    return parameters


def vector(kind: str, name: str) -> dict[str, Any]:
    """The vector of a name."""
    return next(v for v in _VECTORS[kind] if v["name"] == name)


def payload_of(name: str) -> bytes:
    """What follows the DDP header of the first ULPDU of an FPDU vector."""
    return ddp.decode(bytes.fromhex(vector("fpdu", name)["ulpdus_hex"][0]))[1]
