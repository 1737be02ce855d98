"""`stagecoach verilog`: where it writes. What it writes is in tests/hw/test_verilog.py."""

import pytest

from stagecoach.cli.main import main
from stagecoach.cli.verilog import command


@pytest.fixture
def exports(monkeypatch):
    """Prefixes of what was exported."""
    made = []

    def export(config, prefix, mtu):
        made.append(prefix)
        return "module x;\nendmodule\n"

    monkeypatch.setattr(command, "device_verilog", export)
    return made


@pytest.mark.parametrize("where", ["/proc/stagecoach.v", "/proc/no/stagecoach.v", "/dev"])
def test_what_cannot_be_written_is_refused_before_the_export(where, exports, capsys):
    assert main(["verilog", "-o", where]) == 1
    out, err = capsys.readouterr()
    assert (out, exports) == ("", [])
    assert err.startswith("stagecoach verilog: /") and err.count("\n") == 1


def test_a_file_stays_as_it_is_until_there_is_another(monkeypatch, tmp_path):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "device_verilog", fail)
    old, new = tmp_path / "old.v", tmp_path / "folder" / "new.v"
    old.write_text("old")
    for path in (old, new):
        assert main(["verilog", "-o", str(path)]) == 130
    assert old.read_text() == "old"
    assert not new.exists()


def test_a_folder_is_made_and_a_core_file_is_beside_it(exports, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["verilog", "--prefix", "left_"]) == 0
    folder = tmp_path / "build" / "verilog"
    assert sorted(path.name for path in folder.iterdir()) == [
        "left_stagecoach_rnic.core",
        "left_stagecoach_rnic.v",
    ]
    assert exports == ["left_"]
    assert "module left_stagecoach_rnic, 2 lines" in capsys.readouterr().out
    assert main(["verilog", "NIC=1", "MTU=9000"]) == 0
    assert (folder / "stagecoach_nic.v").exists() and (folder / "stagecoach_nic.core").exists()
    assert "module stagecoach_nic, 2 lines" in capsys.readouterr().out
