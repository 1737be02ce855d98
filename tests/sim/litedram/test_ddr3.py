"""The model of the memory finds what violates its timing, and keeps what is written."""

import pytest

from stagecoach.hw.interface.litedram import CAS, CKE, CS, RAS, RESET_N, STEPS, WE
from stagecoach.sim.litedram import ddr3
from stagecoach.sim.litedram.ddr3 import A10, BEATS, Ddr3

START = 100_000
"""After which the memory is awake."""

WORDS = list(range(0x100, 0x100 + BEATS))


def started(skip=(), pause=2 * ddr3.T_DLLK):
    """A chip that is initialised by LiteDRAM's steps but some, and the time."""
    chip, now = Ddr3(), 0
    chip.pins(now, reset_n=False, cke=False)
    now += ddr3.T_RESET
    for step in STEPS:
        if step.control is not None:
            chip.pins(now, bool(step.control & RESET_N), bool(step.control & CKE))
        elif step.name not in skip:
            flags = (bool(step.command & bit) for bit in (RAS, CAS, WE))
            assert step.command & CS
            chip.command(now, *flags, step.address, step.bank)
        now += max(step.wait, ddr3.T_MOD if step.command else 0)
    return chip, now + pause


def act(chip, now, row=5, bank=2):
    chip.command(now, True, False, False, row, bank)


def access(chip, now, write, column=0, bank=2, close=True):
    return chip.command(now, False, True, write, column | A10 * close, bank)


def test_a_burst_is_kept():
    chip, now = started()
    act(chip, now)
    place = access(chip, now + ddr3.T_RCD, True, column=0x1F8)
    assert place == (2, 5, 0x1F8)
    chip.write(place, WORDS)
    act(chip, now + 100)
    assert chip.read(access(chip, now + 102, False, column=0x1F8)) == WORDS
    assert chip.is_usable() and chip.cas_latency == 6 and chip.cas_write_latency == 5
    assert not chip.violations


@pytest.mark.parametrize("name", [step.name for step in STEPS if step.command])
def test_a_step_that_is_missing(name):
    chip, _ = started(skip=[name])
    assert not chip.is_usable()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (lambda chip, now: access(chip, now, False), "no row of bank 2 is open"),
        (lambda chip, now: (act(chip, now), access(chip, now + 1, False)), "ACTIVATE to READ"),
        (lambda chip, now: (act(chip, now), act(chip, now + 5)), "bank 2 is open"),
        (
            lambda chip, now: (act(chip, now), access(chip, now + 2, True), act(chip, now + 10)),
            "bank 2 is not closed",
        ),
        (
            lambda chip, now: (act(chip, now), access(chip, now + 5300, False)),
            "a row was open for 53",
        ),
        (lambda chip, now: (chip.refresh(now), act(chip, now + 19)), "a command before"),
        (lambda chip, now: (chip.refresh(now), act(chip, now + 6000)), "not refreshed since"),
        (lambda chip, now: chip.pins(now, reset_n=True, cke=False), "CKE goes low"),
        (
            lambda chip, now: (
                chip.pins(now, reset_n=False, cke=False),
                chip.pins(now + 100, reset_n=True, cke=False),
            ),
            "RESET# low is 100 cycles",
        ),
        (
            lambda chip, now: (
                chip.pins(now, reset_n=False, cke=False),
                chip.pins(now + 20_000, reset_n=True, cke=False),
                chip.pins(now + 30_000, reset_n=True, cke=True),
            ),
            "CKE low after RESET# is 10000",
        ),
    ],
)
def test_a_violation_is_found(what, words):
    chip, now = started()
    what(chip, now)
    assert any(words in violation for violation in chip.violations), chip.violations


def test_waits_of_the_steps_are_too_short_if_they_are_cycles():
    chip, now = started(pause=0)
    act(chip, now)
    assert any("a command before" in violation for violation in chip.violations)
