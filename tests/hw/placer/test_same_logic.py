"""A netlist is the same logic wherever its cells are; all else that differs is found and named."""

import copy
import json

import pytest

from stagecoach.hw.placer.same_logic import OtherLogic, check_same_logic
from tests.hw.placer.cells import CLOCK, RESET, cell, flip_flop, lut


def netlist():
    """A LUT, a flip-flop, a pin and the buffer of the clock; pins and empty modules beside them."""
    pin = cell("TRELLIS_IO", "X0/Y0/PIOA", {"O"}, {"O": 60})
    del pin["attributes"]["NEXTPNR_BEL"]
    cells = {
        "lut": lut("X3/Y4/SLICEB.K1", 11, 60, 61, 62),
        "flop": flip_flop("X3/Y4/SLICEB.FF1", 61, DI=11, M=None),
        "buffer": cell("DCCA", "X67/Y0/TDCC0", {"CLKO"}, {"CLKI": 50, "CLKO": CLOCK, "CE": None}),
        "pin": pin,
    }
    cells["lut"]["parameters"]["INITVAL"] = "0000000010000000"
    ports = {"scan_in": {"bits": [60]}, "scan_out": {"bits": [61]}}
    empty = {"cells": {}, "ports": {}}
    return {"modules": {"LUT4": empty, "top": {"cells": cells, "ports": ports}}}


@pytest.fixture
def check(tmp_path):
    def of(before, after):
        paths = tmp_path / "placed.json", tmp_path / "other.json"
        for path, one in zip(paths, (before, after), strict=True):
            path.write_text(one if isinstance(one, str) else json.dumps(one))
        check_same_logic(*paths)

    return of


def test_cells_may_be_elsewhere(check):
    before = netlist()
    after = copy.deepcopy(before)
    cells = after["modules"]["top"]["cells"]
    cells["lut"]["attributes"]["NEXTPNR_BEL"] = "X7/Y8/SLICEA.K0"
    cells["flop"]["attributes"]["NEXTPNR_BEL"] = "X7/Y8/SLICEA.FF0"
    # The order of cells and fields says nothing.
    after["modules"]["top"]["cells"] = dict(reversed(cells.items()))
    check(before, after)


def swap_two_inputs(module):
    nets = module["cells"]["lut"]["connections"]
    assert nets["A"] != nets["B"]
    nets["A"], nets["B"] = nets["B"], nets["A"]


def take_another_output(module):
    nets = module["cells"]["lut"]["connections"]
    nets["OFX"] = nets.pop("F")


def change_the_function(module):
    parameters = module["cells"]["lut"]["parameters"]
    parameters["INITVAL"] = parameters["INITVAL"].translate(str.maketrans("01", "10"))


def tie_an_input(module):
    module["cells"]["lut"]["connections"]["C"] = ["0"]


def disconnect_an_input(module):
    module["cells"]["lut"]["connections"]["C"] = []


def make_a_constant_of_a_net(module):
    nets = module["cells"]["lut"]["connections"]
    nets["C"] = [str(net) for net in nets["C"]]


def leave_out_an_input(module):
    del module["cells"]["lut"]["connections"]["C"]


def leave_out_a_cell(module):
    del module["cells"]["lut"]


def drive_the_net_of_another(module):
    cells = module["cells"]
    cells["pin"]["connections"]["O"] = cells["lut"]["connections"]["F"]


def swap_two_pins(module):
    one, other = (module["ports"][name] for name in ("scan_in", "scan_out"))
    one["bits"], other["bits"] = other["bits"], one["bits"]


def clock_from_before_the_buffer(module):
    cells = module["cells"]
    cells["flop"]["connections"]["CLK"] = cells["buffer"]["connections"]["CLKI"]


def move_a_cell_that_had_no_place(module):
    module["cells"]["pin"]["attributes"]["NEXTPNR_BEL"] = "X0/Y0/PIOA"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swap_two_inputs, r"cells/lut/connections/A: \[\d+\]; before: \[\d+\]"),
        (take_another_output, "cells/lut/connections/F is in one of them only"),
        (change_the_function, "cells/lut/parameters/INITVAL: [01]+; before: "),
        (tie_an_input, r"cells/lut/connections/C: \['0'\]; before: "),
        (disconnect_an_input, r"cells/lut/connections/C: \[\]; before: "),
        (make_a_constant_of_a_net, r"cells/lut/connections/C: \['\d+'\]; before: "),
        (leave_out_an_input, "cells/lut/connections/C is in one of them only"),
        (leave_out_a_cell, "cells/lut is in one of them only"),
        (drive_the_net_of_another, "cells/pin/connections/O: "),
        (swap_two_pins, "ports/scan_in/bits: "),
        (move_a_cell_that_had_no_place, "cells/pin/attributes/NEXTPNR_BEL is in one of them only"),
        (clock_from_before_the_buffer, "cells/flop/connections/CLK: "),
    ],
)
def test_other_logic_is_found(check, change, message):
    before = netlist()
    after = copy.deepcopy(before)
    change(after["modules"]["top"])
    with pytest.raises(OtherLogic, match=f"other.json is not the logic of .*: .*{message}"):
        check(before, after)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"modules": {"top": {"cells": {"a": {}}}}}'])
def test_a_damaged_netlist_is_named(check, text):
    for before, after in (netlist(), text), (text, netlist()), (text, text):
        with pytest.raises(OtherLogic, match=r"other\.json"):
            check(before, after)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(OtherLogic, match=r"nothing .* are not netlists: FileNotFoundError"):
        check_same_logic(tmp_path / "nothing", tmp_path / "nothing")


def one(net, **more):
    """A LUT whose content is ones; `MODE="DPRAM"` makes a memory of it."""
    return cell("TRELLIS_COMB", "X50/Y2/SLICEA.K0", {"F"}, {"F": net}, INITVAL="1" * 16, **more)


@pytest.mark.parametrize(
    ("enable", "passes"),
    [(one(40), True), (one(40, MODE="DPRAM"), False), (flip_flop("X50/Y2/SLICEA.FF0", 40), False)],
)
def test_only_a_buffer_that_is_always_enabled_passes_its_net(placement, tmp_path, enable, passes):
    placed = placement(
        enable=enable,
        reset=flip_flop("X60/Y2/SLICEA.FF0", 30, LSR=None),
        buffer=cell("DCCA", "X67/Y0/TDCC0", {"CLKO"}, {"CLKI": 30, "CLKO": RESET, "CE": 40}),
        lut=lut("X3/Y4/SLICEA.K0", 11, RESET),
    )
    placed.globals_to_logic()
    path = tmp_path / "changed.json"
    placed.write(path)
    if passes:
        check_same_logic(tmp_path / "placed.json", path)
    else:
        with pytest.raises(OtherLogic, match="cells/lut/connections/A"):
            check_same_logic(tmp_path / "placed.json", path)
