"""The known answers of `tests/data/vectors.json`, for tests inside a simulation."""

import json
from pathlib import Path
from typing import Any

_FILE = Path(__file__).resolve().parents[1] / "data" / "vectors.json"


def all_vectors(kind: str) -> list[dict[str, Any]]:
    """Every vector of a kind ("crc32c", "fpdu", ...)."""
    found: list[dict[str, Any]] = json.loads(_FILE.read_text())[kind]
    return found
