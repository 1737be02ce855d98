"""What is taken as a figure."""

import pytest

from bench import measure
from bench.catalogue import STEADY_MESSAGES
from bench.floors import shortened

KEY = "write_0_rx_cycles_per_message"


@pytest.mark.parametrize("shape", [None, shortened])
@pytest.mark.parametrize("messages", [STEADY_MESSAGES, STEADY_MESSAGES - 1])
def test_a_figure_is_of_a_thousand_messages_in_steady_state(monkeypatch, messages, shape):
    result = {"octets": 0, "messages": messages, "cycles": 4 * messages}
    monkeypatch.setattr(measure, "run_case", lambda case: result)
    figures, failed = measure.measure([KEY], lambda key: None, lambda results: None, shape)
    if shape is None and messages < STEADY_MESSAGES:
        assert failed == {KEY: "999 messages in steady state; allowed: 1000 or more"}
    else:
        assert figures == {KEY: 4.0} and not failed
