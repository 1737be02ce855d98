"""`stagecoach cache`: what it shows of the cache, and what it removes."""

import json

import pytest

from stagecoach.cli.cache.command import age_text, size_text
from stagecoach.cli.main import main
from stagecoach.hw.files import locked
from tests.support.cache_entries import keep, keys


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("STAGECOACH_CACHE", str(folder))
    monkeypatch.delenv("STAGECOACH_CACHE_MIB", raising=False)
    return folder


def test_the_command_shows_what_is_there(root, capsys):
    keep("device", "a", 3 << 20, 2.5)
    keep("device", "b", 1 << 20, 30)
    keep("cocotb", "c", 2048)
    assert main(["cache"]) == 0
    rows = [
        " ".join(line.strip("│").replace("│", " ").split())
        for line in capsys.readouterr().out.splitlines()
    ]
    assert "compiled devices 2 4.0 MiB 2 hours ago" in rows
    assert "block simulators 1 2.0 KiB now" in rows
    assert "exported Verilog 0 0 bytes" in rows
    assert rows[-1] == f"{root}: 4.0 MiB of 4.0 GiB (STAGECOACH_CACHE_MIB)"

    assert main(["cache", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["folder"], found["limit_bytes"]) == (str(root), 4 << 30)
    assert [row["size_bytes"] for row in found["kinds"]] == [4 << 20, 0, 2048, 0, 0, 0]


def test_the_command_clears_what_nobody_makes(root, capsys):
    keep("device", "a", 1 << 20)
    keep("cocotb", "b", 1 << 20)
    with locked(root / "cocotb" / "b"):
        assert main(["cache", "clear"]) == 0
    assert keys() == ["b"]
    out = capsys.readouterr().out
    assert f"{root}: 1 entries removed, 1.0 MiB\n1 entries stay: another process" in out
    assert main(["cache", "clear"]) == 0
    assert keys() == []


@pytest.mark.parametrize("arguments", [["cache"], ["cache", "clear"], ["cache", "--json"]])
def test_a_cache_that_is_a_file_is_neither_shown_nor_cleared(
    tmp_path, monkeypatch, capsys, arguments
):
    file = tmp_path / "file"
    file.write_text("of the user")
    monkeypatch.setenv("STAGECOACH_CACHE", str(file))
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"stagecoach cache: the cache {file} is no folder; name one in STAGECOACH_CACHE\n"
    assert file.read_text() == "of the user"


@pytest.mark.parametrize(
    ("octets", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (3 << 29, "1.5 GiB")],
)
def test_sizes_are_in_the_largest_unit(octets, text):
    assert size_text(octets) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "now"), (59, "now"), (60, "1 minute ago"), (7200, "2 hours ago"), (200000, "2 days ago")],
)
def test_ages_are_in_words(seconds, text):
    assert age_text(seconds) == text
