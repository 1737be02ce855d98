"""The server's rig."""

import pytest

from tests.ulp.nfs.rig import Rig


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    rig.assert_untouched()
    rig.close()
