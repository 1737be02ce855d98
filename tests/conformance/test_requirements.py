"""The requirement list as data: what may stand beside it, and how much may be reviewed only."""

from pathlib import Path

import pytest

from tests.conformance.requirements import FOLDER, REVIEWS, Requirements

ROOT = Path(__file__).resolve().parents[2]
REVIEWED_SHARE = 0.05
"""Of the rows that are counted, so many at most may be shown by a review."""

ROWS = """id,spec,section,level,component,requirement,verify
A-1,RFC1,1,MUST,one,"first, with a comma",test
A-2,RFC1,2,SHOULD,one,second,test
A-3,RFC1,3,MAY,one,third,test
A-4,RFC1,4,MUST,not-applicable,fourth,test
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A list of four rows."""
    (tmp_path / "requirements.csv").write_text(ROWS)
    for name in ("corrections.toml", *REVIEWS):
        (tmp_path / name).write_text("")
    return tmp_path


def test_must_and_should_rows_of_what_is_built_are_counted(folder: Path):
    requirements = Requirements(folder)
    assert list(requirements.rows) == ["A-1", "A-2", "A-3", "A-4"]
    assert [row.id for row in requirements.counted] == ["A-1", "A-2"]


def test_rows_of_all_files_are_one_list(folder: Path):
    more = ROWS.replace("A-", "B-")
    (folder / "more.csv").write_text(more)
    assert list(Requirements(folder).rows) == [f"{file}-{n}" for file in "BA" for n in (1, 2, 3, 4)]


def test_a_correction_replaces_the_text_and_says_why(folder: Path):
    (folder / "corrections.toml").write_text('["A-2"]\ntext = "right"\nreason = "it was wrong"\n')
    rows = Requirements(folder).rows
    assert (rows["A-2"].text, rows["A-2"].correction) == ("right", "it was wrong")
    assert (rows["A-1"].text, rows["A-1"].correction) == ("first, with a comma", "")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("requirements.csv", ROWS + "A-1,,,MUST,one,again,\n", "A-1 occurs twice"),
        ("more.csv", ROWS, "more.csv: A-1 occurs twice|requirements.csv: A-1 occurs twice"),
        (
            "corrections.toml",
            '["A-9"]\ntext = ""\nreason = ""\n',
            r"\['A-9'\]; allowed: ids of rows",
        ),
        ("corrections.toml", '["A-1"]\nreason = ""\n', "allowed: a table of"),
        ("reviewed.toml", '["A-9"]\nreason = ""\nwhere = []\n', r"\['A-9'\]; allowed: ids of rows"),
        ("reviewed.toml", '["A-4"]\nreason = ""\nwhere = []\n', "allowed: rows that are counted"),
    ],
    ids=["twice", "in two files", "unknown correction", "no text", "unknown review", "not counted"],
)
def test_what_names_no_row_is_refused(folder: Path, name: str, content: str, message: str):
    (folder / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        Requirements(folder)


def test_a_row_is_reviewed_or_not_followed(folder: Path):
    (folder / "reviewed.toml").write_text('["A-1"]\nreason = "r"\nwhere = []\n')
    (folder / "not_followed.toml").write_text('["A-2"]\nreason = "n"\nwhere = []\n')
    reviews = Requirements(folder).reviews
    assert (reviews["A-1"].followed, reviews["A-2"].followed) == (True, False)
    (folder / "not_followed.toml").write_text('["A-1"]\nreason = "n"\nwhere = []\n')
    with pytest.raises(ValueError, match=r"not_followed.toml: \['A-1'\]; allowed: in one file"):
        Requirements(folder)


@pytest.mark.parametrize("group", ["", "tcp"])
def test_few_rows_are_reviewed_only(group: str):
    requirements = Requirements()
    counted = [row for row in requirements.counted if row.group == group]
    reviewed = [id for id in requirements.reviews if requirements.rows[id].group == group]
    assert len(reviewed) <= REVIEWED_SHARE * len(counted)


def test_rows_of_tcp_are_a_group_and_counted_by_stage(folder: Path):
    lines = ROWS.replace("A-", "T-").splitlines()
    stages = ["stage", "1", "2", "1", "1"]
    text = "\n".join(f"{line},{stage}" for line, stage in zip(lines, stages, strict=True))
    (folder / "tcp.csv").write_text(text.replace("third,test,1", "third,test,-"))
    rows = Requirements(folder).rows
    assert [row.group for row in rows.values()] == [""] * 4 + ["tcp"] * 4
    assert [row.id for row in rows.values() if row.counted] == ["A-1", "A-2", "T-1"]
    assert [rows[f"T-{n}"].outside for n in (1, 2, 3, 4)] == [
        None,
        "later",
        "not-applicable",
        "not-applicable",
    ]


def test_reviews_say_why_and_name_files_that_exist():
    for id, review in Requirements().reviews.items():
        assert len(review.reason) > 20, id
        assert review.where, id
        for place in review.where:
            assert (ROOT / place).exists(), f"{id}: {place}"


def test_corrections_change_something():
    requirements = Requirements()
    unchanged = "".join(path.read_text() for path in FOLDER.glob("*.csv"))
    for row in requirements.rows.values():
        if row.correction:
            assert row.text not in unchanged, row.id
