"""An earlier commit is measured by turns with this one, and what is none is named in one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import before
from bench.before import KEY, ROOT, ROUNDS, BeforeError, measure_before


def _run(monkeypatch: pytest.MonkeyPatch, commit: str) -> int:
    monkeypatch.setattr(sys, "argv", ["bench", "--before", commit])
    return command.main()


def test_the_ratio_is_that_of_the_rounds(monkeypatch, tmp_path, capsys):
    """The machine becomes slower and slower: only neighbours may be compared."""
    measured = []

    def speed(tree: Path, script: Path) -> float:
        measured.append(tree == ROOT)
        return (1000 if tree == ROOT else 800) / len(measured)

    monkeypatch.setattr(before, "_check_out", lambda commit, tree: None)
    monkeypatch.setattr(before, "_cycles_per_second", speed)
    monkeypatch.setattr(command, "BEFORE", tmp_path / "before.json")
    assert _run(monkeypatch, "v1") == 0
    assert measured == [False, True] * ROUNDS
    found = json.loads((tmp_path / "before.json").read_text())
    assert found["before"] == "v1"
    assert found[KEY] == round(1000 / 800 * 5 / 6, 3)
    assert f"{KEY}: {found[KEY]}" in capsys.readouterr().out


@pytest.mark.parametrize("commit", ["no-such-commit", "--output=x", ""])
def test_what_is_no_commit_is_refused_in_one_line(commit, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench", f"--before={commit}"])
    assert command.main() == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith(f"bench: no commit {commit!r}: ")


def test_a_tree_that_cannot_be_measured_says_why(tmp_path):
    script = tmp_path / "measure.py"
    script.write_text("raise SystemExit('no device')")
    with pytest.raises(BeforeError, match="was not measured: no device"):
        before._cycles_per_second(tmp_path, script)


def test_a_commit_is_checked_out_as_it_was(tmp_path):
    if subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).returncode:
        pytest.skip("no repository")
    before._check_out("HEAD", tmp_path / "tree")
    assert (tmp_path / "tree" / "bench" / "speed.py").is_file()
    assert not (tmp_path / "tree" / ".git").exists()
    with pytest.raises(BeforeError):
        measure_before("no-such-commit", lambda what: None)
