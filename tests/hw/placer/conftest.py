"""A placed netlist of few cells."""

import json

import pytest

from stagecoach.hw.placer.placement import Placement


@pytest.fixture
def placement(tmp_path):
    def made(**cells):
        path = tmp_path / "placed.json"
        path.write_text(json.dumps({"modules": {"top": {"cells": cells}}}))
        return Placement(path)

    return made
