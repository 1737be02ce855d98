"""Margins: windows, the choice among them, and the table."""

import pytest

from stagecoach.host_driver.board_memory.margins import LaneMargin, Margins, Window


def lane(*rows: str, number: int = 0) -> LaneMargin:
    return LaneMargin(number, tuple(tuple(sign == "+" for sign in row) for row in rows))


@pytest.mark.parametrize(
    ("rows", "chosen", "delay"),
    [
        (("++++++++",), Window(0, 0, 7), 3),
        (("........", "+......."), Window(1, 0, 0), 0),
        (("........", ".......+"), Window(1, 7, 7), 7),
        (("+++.....", "....++++"), Window(1, 4, 7), 5),
        (("+++..+++", "+++....."), Window(0, 0, 2), 1),
        (("+.+++.+.", "........"), Window(0, 2, 4), 3),
        (("........", "........"), None, None),
    ],
)
def test_the_middle_of_the_widest_window_is_chosen(rows, chosen, delay):
    margin = lane(*rows)
    assert margin.chosen == chosen
    if chosen is not None:
        assert margin.chosen.delay == delay


def test_all_windows_are_told_and_none_goes_on_in_the_next_bitslip():
    assert lane(".++.+..+", "++......").windows == (
        Window(0, 1, 2),
        Window(0, 4, 4),
        Window(0, 7, 7),
        Window(1, 0, 1),
    )


def test_the_least_is_that_of_the_worst_lane():
    wide, narrow, none = lane("++++", "...."), lane("....", ".+.."), lane("....", "....")
    assert Margins((wide, narrow)).least == 1
    assert Margins((wide, wide)).least == 4
    assert Margins((wide, none)).least == 0


def test_the_table():
    table = str(Margins((lane("........", ".+++++..", number=0), lane("........", number=1))))
    assert table.splitlines() == [
        "lane  bitslip  delays    window  chosen",
        "   0        0  ........",
        "   0        1  .+++++..  1 to 5  delay 3",
        "   1        0  ........",
        "   1  reads right at no delay",
    ]
