"""The survivors that stay, each with its reason: `explained.toml`."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("explained.toml")


class BadExplanations(Exception):
    """The file cannot be read; the message says why and what is allowed."""


@dataclass(frozen=True)
class Explanation:
    """Why no test kills a mutant; `equivalent` if no input tells it from the device."""

    equivalent: bool
    reason: str


def read_explanations(file: Path = FILE) -> dict[tuple[str, str], Explanation]:
    """Explanations by file and change. Raises `BadExplanations`."""
    keys = {"file", "change", "equivalent", "reason"}
    try:
        entries = tomllib.loads(file.read_text()).get("mutant", [])
    except (OSError, ValueError) as error:
        raise BadExplanations(f"{file}: {error}") from error
    found: dict[tuple[str, str], Explanation] = {}
    for entry in entries:
        if set(entry) != keys or not isinstance(entry["equivalent"], bool) or not entry["reason"]:
            raise BadExplanations(f"{file}: {entry!r}; allowed: {', '.join(sorted(keys))}")
        found[entry["file"], entry["change"]] = Explanation(entry["equivalent"], entry["reason"])
    return found
