"""One simulation of the RDMAP receiver with all checks of a test file."""

import pytest

from stagecoach.gateware.rdmap.receive.receiver import Receiver
from tests.rdmap.receive.model import CONFIG
from tests.support.verdicts import PATTERNS, Verdicts, simulate


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """What became of the checks of the file that asks, with one pattern of back-pressure."""
    return simulate(tmp_path_factory, Receiver(CONFIG), request.module.__name__, request.param)
