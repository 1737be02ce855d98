"""The requirement list: a row per normative statement, with what was corrected or reviewed."""

import csv
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent

OUTSIDE = {
    "not-applicable": "nothing that this device or its driver does",
    "later": "of a later stage of TCP/IP",
}
"""What is not counted, and why."""

TCP_FILE = "tcp.csv"

STAGE = "1"
"""That of TCP/IP which is built."""

COUNTED_LEVELS = ("MUST", "SHOULD")


@dataclass(frozen=True)
class Requirement:
    """A row. `correction` says why `text` is not the one of the CSV file, empty if it is.

    `group` is "tcp" for a row of TCP/IP, which are counted apart, and `stage` when it is built: "1"
    now, "2" and "3" later, "-" never.
    """

    id: str
    spec: str
    section: str
    level: str
    component: str
    text: str
    correction: str = ""
    group: str = ""
    stage: str = STAGE

    @property
    def outside(self) -> str | None:
        """The key in `OUTSIDE` of a row that is not counted whatever its level is."""
        if self.component == "not-applicable" or self.stage == "-":
            return "not-applicable"
        return None if self.stage == STAGE else "later"

    @property
    def counted(self) -> bool:
        """Whether it has to be shown by a test or a review."""
        return not self.outside and self.level in COUNTED_LEVELS


REVIEWS = {"reviewed.toml": True, "not_followed.toml": False}
"""Files with rows that have no test, and whether what they say is followed."""


@dataclass(frozen=True)
class Review:
    """Why no test can show a row, and where it can be read. A row may also not be `followed`."""

    reason: str
    where: tuple[str, ...]
    followed: bool = True


class Requirements:
    """All rows in the order of the files and documents.

    `requirements.csv` has the rows of the specification pack, `rfc8166.csv` those of RFC 8166,
    `tcp.csv` those of TCP/IP.

    Parameters
    ----------
    folder: has the rows in CSV files, `corrections.toml`, `reviewed.toml`, `not_followed.toml`.

    Raises `ValueError` for an id that occurs twice, for a correction or a review of an id that
    does not exist, and for a review of a row that is not counted or was reviewed before.
    """

    def __init__(self, folder: Path = FOLDER):
        corrections = _tables(folder / "corrections.toml", {"text", "reason"})
        reviews = {name: _tables(folder / name, {"reason", "where"}) for name in REVIEWS}
        self.rows: dict[str, Requirement] = {}
        for path in sorted(folder.glob("*.csv")):
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    self._add(path.name, row, corrections.get(row["id"], {}))
        for name, found in {"corrections.toml": corrections, **reviews}.items():
            if unknown := sorted(found.keys() - self.rows.keys()):
                raise ValueError(f"{name}: {unknown}; allowed: ids of rows")
        self.reviews: dict[str, Review] = {}
        for name, found in reviews.items():
            if outside := sorted(id for id in found if not self.rows[id].counted):
                raise ValueError(f"{name}: {outside}; allowed: rows that are counted")
            if twice := sorted(found.keys() & self.reviews.keys()):
                raise ValueError(f"{name}: {twice}; allowed: in one file")
            self.reviews |= {
                id: Review(review["reason"], tuple(review["where"]), REVIEWS[name])
                for id, review in found.items()
            }

    def _add(self, file: str, row: dict[str, str], correction: dict[str, Any]) -> None:
        if row["id"] in self.rows:
            raise ValueError(f"{file}: {row['id']} occurs twice")
        self.rows[row["id"]] = Requirement(
            row["id"],
            row["spec"],
            row["section"],
            row["level"],
            row["component"],
            correction.get("text", row["requirement"]),
            correction.get("reason", ""),
            "tcp" if file == TCP_FILE else "",
            row.get("stage", STAGE),
        )

    @cached_property
    def counted(self) -> list[Requirement]:
        """The rows that a test or a review has to show."""
        return [row for row in self.rows.values() if row.counted]

    def faults(self, named: Iterable[str]) -> list[str]:
        """What is wrong with ids that a test names."""
        found = []
        for id in named:
            if id not in self.rows:
                found.append(f"{id!r} is no id of a row")
            elif id in self.reviews:
                found.append(f"{id!r} has a test now: it must not be in {_file(self.reviews[id])}")
        return found


def _file(review: Review) -> str:
    return next(name for name, followed in REVIEWS.items() if followed == review.followed)


def _tables(path: Path, keys: set[str]) -> dict[str, dict[str, Any]]:
    tables = tomllib.loads(path.read_text())
    for id, table in tables.items():
        if not isinstance(table, dict) or table.keys() != keys:
            raise ValueError(f"{path.name}: {id} is {table!r}; allowed: a table of {sorted(keys)}")
    return tables
