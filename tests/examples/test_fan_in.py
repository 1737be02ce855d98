"""The example of sixteen clients: one that is killed costs the others nothing."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "fan_in" / "fan_in.py"
MESSAGES = 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--messages", "1"], "messages is 1; allowed: 2 to 100000"),
        (["--messages", "x"], "argument --messages: invalid int value: 'x'"),
    ],
)
def test_bad_options_are_one_line_and_status_2(arguments, message, capsys):
    spec = importlib.util.spec_from_file_location("fan_in", PROGRAM)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    with pytest.raises(SystemExit) as caught:
        example.main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr() == ("", f"fan_in: {message}\n")


@pytest.mark.usefixtures("compiled_device")
def test_a_client_that_is_killed_costs_the_others_nothing():
    run = subprocess.run(
        [sys.executable, PROGRAM, "--messages", str(MESSAGES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stderr) == (0, ""), run.stdout + run.stderr
    gone, others, end, low = run.stdout.splitlines()
    assert gone == f"client 7 is gone after {MESSAGES // 2} of {MESSAGES} messages"
    sent = re.fullmatch(rf"the others had sent (\d+) of {15 * MESSAGES}", others)
    assert sent is not None and int(sent[1]) < 15 * MESSAGES, "it was not in the middle"
    assert end == f"16 clients sent all {MESSAGES} messages, the newcomer among them"
    refills = re.fullmatch(r"the shared receive queue ran low (\d+) times", low)
    # 48 receives are there, and 16 * 8 + 4 messages come.
    assert refills is not None and int(refills[1]) >= 3
