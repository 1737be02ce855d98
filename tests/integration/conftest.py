"""All tests of this folder open the compiled device."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _uses_the_device(compiled_device: None) -> None:
    """See tests/conftest.py."""
