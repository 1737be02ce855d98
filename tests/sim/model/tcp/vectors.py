"""Known-answer vectors and captures of TCP: tests/data/tcp."""

import json
from typing import Any

import pytest

from tests.sim.model.vectors import DATA

TCP_DATA = DATA / "tcp"
VECTORS: dict[str, list[dict[str, Any]]] = json.loads((TCP_DATA / "vectors.json").read_text())


def vectors(kind: str) -> list[Any]:
    """All vectors of a kind as pytest parameters, named by their origin."""
    return [
        pytest.param(vector, id=f"{vector['origin']}: {vector.get('name', number)}")
        for number, vector in enumerate(VECTORS[kind])
    ]


def packet(name: str) -> bytes:
    """The IPv4 packet of a frame vector, without its Ethernet header."""
    return bytes.fromhex(next(v for v in VECTORS["frames"] if v["name"] == name)["frame_hex"])[14:]
