"""Names and errors of others in the tables of commands: as they are, and no words to a terminal."""

import pytest

from stagecoach.cli.devices import command as devices
from stagecoach.cli.plain_text import plain, printable
from stagecoach.host_driver.locate import parse_device


@pytest.mark.parametrize("text", ["[/x]", "[bold]a", "\\[b]", "a\nb", "Grüße"])
def test_text_stays_what_it_is(text):
    assert plain(text).plain == printable(text) == text


def test_what_a_terminal_would_obey_is_escaped():
    assert printable("\x1b[2J\r\x00\x9b\u202e") == "\\x1b[2J\\r\\x00\\x9b\\u202e"


def test_devices_are_listed_whatever_they_are_called(monkeypatch, capsys):
    monkeypatch.setattr(devices, "_simulated", lambda: {"device": "[/a]", "state": "\x1b[/b]"})
    monkeypatch.setattr(devices.list_ports, "comports", list)
    named = parse_device("serial:///no/such/[/port]")
    assert devices.show_devices([named], 9600, as_json=False) == 0
    output = capsys.readouterr().out
    for text in ("[/a]", "\\x1b[/b]", "[/port]", "cannot open"):
        assert text in output
