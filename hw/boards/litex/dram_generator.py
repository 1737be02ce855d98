"""Writes LiteDRAM's standalone core for an ECPIX-5 into the current folder: Verilog, and its map.

The core has no processor: who uses it initialises the memory by its registers. `name`.json has
their map, the settings of the PHY, the sizes of the chip, and the sequence that initialises it.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from litedram.gen import LiteDRAMCore
from litedram.init import get_sdram_phy_init_sequence
from litedram.modules import MT41K256M16
from litedram.phy import ECP5DDRPHY
from litex.build.lattice import LatticePlatform
from litex.soc.integration.builder import Builder

from stagecoach.hw.boards.litex.generate import without_comments

DEVICE = "LFE5UM5G-85F-8BG554I"

CONFIG = {
    "cpu": None,
    "memtype": "DDR3",
    "sdram_module": MT41K256M16,
    "sdram_module_nb": 2,
    "sdram_rank_nb": 1,
    "sdram_phy": ECP5DDRPHY,
    # As Microwatt has them, which runs on this board.
    "rtt_nom": "60ohm",
    "rtt_wr": "60ohm",
    "ron": "34ohm",
    "input_clk_freq": 100e6,
    "sys_clk_freq": 75e6,
    "init_clk_freq": 25e6,
    "cmd_buffer_depth": 16,
    "user_ports": {"axi": {"type": "axi", "id_width": 4}},
}

GEOMETRY = ("bankbits", "rowbits", "colbits")

SETTINGS = ("nphases", "rdphase", "wrphase", "cl", "cwl", "databits", "delays", "bitslips")


def main(name: str) -> None:
    """Writes `name`.v with the module `name`, and `name`.json."""
    core = LiteDRAMCore(LatticePlatform(DEVICE, io=[], toolchain="trellis"), CONFIG)
    with TemporaryDirectory(dir=".") as folder:
        csr = Path(folder) / "csr.json"
        builder = Builder(
            core,
            output_dir=folder,
            compile_software=False,
            compile_gateware=False,
            csr_json=str(csr),
        )
        builder.build(build_name=name, regular_comb=False)
        text = (Path(folder) / "gateware" / f"{name}.v").read_text()
        registers = json.loads(csr.read_text())["csr_registers"]
    controller = core.sdram.controller.settings
    steps, _ = get_sdram_phy_init_sequence(controller.phy, controller.timing)
    found = {
        "registers": registers,
        "settings": {setting: getattr(controller.phy, setting) for setting in SETTINGS},
        "steps": steps,
        "geometry": {name: getattr(controller.geom, name) for name in GEOMETRY},
        "user_clock_hz": int(CONFIG["sys_clk_freq"]),
    }
    Path(f"{name}.v").write_text(without_comments(text))
    Path(f"{name}.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
