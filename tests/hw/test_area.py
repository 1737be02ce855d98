"""What the blocks of a netlist take."""

import json

from stagecoach.hw.area import by_block, of_part

CELLS = {
    "device.framer.a_LUT4_Z": "LUT4",
    "device.framer.crc.b_CCU2C_S0": "CCU2C",
    "device.framer.crc.c_TRELLIS_FF_Q": "TRELLIS_FF",
    "device.gather.table.0.0": "TRELLIS_DPR16X4",
    "device.gather.d_LUT4_Z": "LUT4",
    "device.store.0": "DP16KD",
    "device.ready_LUT4_Z": "LUT4",  # between blocks
    "device.error__payload$567.qp_LUT4_Z": "LUT4",
    "source_TRELLIS_FF_Q": "TRELLIS_FF",  # of the harness
}


def test_cells_count_for_the_block_that_is_named_first(tmp_path):
    netlist = tmp_path / "rnic.json"
    cells = {name: {"type": kind} for name, kind in CELLS.items()}
    model = {"attributes": {"blackbox": "1"}, "cells": {}}
    top = {"attributes": {"top": "1"}, "cells": cells}
    netlist.write_text(json.dumps({"modules": {"LUT4": model, "rnic": top}}))
    assert by_block(netlist) == {
        "gather": {"lut4": 7, "lut4_of_memories": 6, "ff": 0, "dp16kd": 0},
        "framer": {"lut4": 3, "lut4_of_memories": 0, "ff": 1, "dp16kd": 0},
        "store": {"lut4": 0, "lut4_of_memories": 0, "ff": 0, "dp16kd": 1},
    }
    assert list(by_block(netlist)) == ["gather", "framer", "store"]
    assert of_part(netlist, "device.framer") == by_block(netlist)["framer"]
    assert of_part(netlist, "device")["lut4"] == 12
    assert by_block(netlist, "device.framer") == {
        "crc": {"lut4": 2, "lut4_of_memories": 0, "ff": 1, "dp16kd": 0}
    }
    # Of a block that is opened, those within it stand beside it.
    opened = by_block(netlist, opened=("framer", "gather"))
    assert {name: row["lut4"] for name, row in opened.items()} == {
        "gather.table": 6,
        "framer.crc": 2,
        "framer": 1,
        "gather": 1,
        "store": 0,
    }
