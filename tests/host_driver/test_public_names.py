"""`help` of what programs use shows what is for them, and the reference shows all of it."""

import re
from pathlib import Path

import pytest

import stagecoach

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"

MEMBERS = {
    "AcceptedRequest": "close connect peer_address poll wait",
    "BoardMemory": "is_ready start",
    "CQ": "ack_events close cqe poll req_notify stream wait wait_event",
    "CompChannel": "close fileno get_cq_event",
    "ConnectionListener": "accept close get_request",
    "ConnectionRequest": "accept close local_address peer_address reject",
    "Context": "add_event_handler clear_interrupts close command cycles events_lost fileno"
    " fpdus_received fpdus_sent get_async_event poll_until process_events query_device read"
    " remove_event_handler reset wait wait_until write write_wide",
    "CycleTime": "cycles",
    "DeviceMemory": "address close read write",
    "FastMR": "close host_address lkey read rkey write",
    "MR": "close host_address lkey read rkey write",
    "PD": "close",
    "QP": "close connect disconnect post_recv post_send query query_state receives_posted state",
    "SRQ": "close max_wr modify outstanding post_recv post_srq_recv query",
}
"""Methods and properties for programs; attributes are in the docstrings of the classes."""


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


@pytest.mark.parametrize("name", MEMBERS)
def test_help_shows_what_a_program_may_use_and_no_more(name):
    assert public(getattr(stagecoach, name)) == set(MEMBERS[name].split())


@pytest.mark.parametrize("name", MEMBERS)
def test_the_reference_shows_the_same(name):
    pages = "".join(page.read_text() for page in REFERENCE.glob("*.rst"))
    found = re.search(rf"^\.\. autoclass:: {name}\n((?:   :.*\n)*)", pages, re.MULTILINE)
    assert found is not None
    options = {line.strip() for line in found[1].splitlines()}
    of = getattr(stagecoach, name)
    inherits = public(of) != {each for each in vars(of) if not each.startswith("_")}
    assert options == {":members:"} | ({":inherited-members:"} if inherits else set())


@pytest.mark.parametrize("attribute", ["qps", "mrs", "events", "events_lost", "attr", "transport"])
def test_help_of_a_context_names_its_attributes(attribute):
    assert re.search(rf"\b{attribute}: ", stagecoach.Context.__doc__ or "")
