"""Names and errors of others in the tables of commands: as they are, and no words to a terminal."""

import pytest

from stagecoach.cli.plain_text import plain, printable


@pytest.mark.parametrize("text", ["[/x]", "[bold]a", "\\[b]", "a\nb", "Grüße"])
def test_text_stays_what_it_is(text):
    assert plain(text).plain == printable(text) == text


def test_what_a_terminal_would_obey_is_escaped():
    assert printable("\x1b[2J\r\x00\x9b\u202e") == "\\x1b[2J\\r\\x00\\x9b\\u202e"
