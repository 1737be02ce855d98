"""All tests of this folder open the compiled device."""

from collections.abc import Iterator

import pytest

from stagecoach.host_driver import Context, RecvWR
from stagecoach.sim.cosim.streams import seeded_random
from tests.integration.test_revoke import Link


@pytest.fixture(autouse=True, scope="session")
def _uses_the_device(compiled_device: None) -> None:
    """See tests/conftest.py."""


@pytest.fixture
def link(context: Context) -> Iterator[Link]:
    """Two connected QPs of the `context` of a file; the passive one has 8 receives."""
    link = Link(context, seeded_random())
    link.passive.qp.post_recv(*(RecvWR(n, [link.passive.element(0, 100)]) for n in range(8)))
    yield link
    link.close()
