"""LiteDRAM's standalone core for an ECPIX-5: its Verilog and its ports.

One MT41K256M16: 512 MiB with 16 bits of data, at 150 MHz and 300 MT/s. The core has a PLL of its
own and makes `user_clk`, 75 MHz, out of the board's 100 MHz; everything but `clk`, `rst` and
`ddram_*` belongs to `user_clk`. Its AXI port has words of 128 bits. It is shut until somebody has
initialised the memory, found delays at which it reads right, and set `ddrctrl_init_done`; all that
by the registers of `hw/interface/litedram.py`, over the Wishbone port `wb_ctrl_*`.

What follows is compared with the generated core by a test.
"""

from stagecoach.hw.boards.litex.generate import generated

MODULE = "stagecoach_litedram"
"""Its name; there is no other module in its Verilog."""

_GENERATOR = "stagecoach.hw.boards.litex.dram_generator"

PORTS = {
    "clk": ("input", 1),
    "ddram_a": ("output", 15),
    "ddram_ba": ("output", 3),
    "ddram_cas_n": ("output", 1),
    "ddram_cke": ("output", 1),
    "ddram_clk_n": ("input", 1),
    "ddram_clk_p": ("output", 1),
    "ddram_cs_n": ("output", 1),
    "ddram_dm": ("output", 2),
    "ddram_dq": ("input", 16),
    "ddram_dqs_n": ("input", 2),
    "ddram_dqs_p": ("input", 2),
    "ddram_odt": ("output", 1),
    "ddram_ras_n": ("output", 1),
    "ddram_reset_n": ("output", 1),
    "ddram_we_n": ("output", 1),
    "init_done": ("output", 1),
    "init_error": ("output", 1),
    "pll_locked": ("output", 1),
    "rst": ("input", 1),
    "user_clk": ("output", 1),
    "user_port_axi_araddr": ("input", 29),
    "user_port_axi_arburst": ("input", 2),
    "user_port_axi_arid": ("input", 4),
    "user_port_axi_arlen": ("input", 8),
    "user_port_axi_arready": ("output", 1),
    "user_port_axi_arsize": ("input", 4),
    "user_port_axi_arvalid": ("input", 1),
    "user_port_axi_awaddr": ("input", 29),
    "user_port_axi_awburst": ("input", 2),
    "user_port_axi_awid": ("input", 4),
    "user_port_axi_awlen": ("input", 8),
    "user_port_axi_awready": ("output", 1),
    "user_port_axi_awsize": ("input", 4),
    "user_port_axi_awvalid": ("input", 1),
    "user_port_axi_bid": ("output", 4),
    "user_port_axi_bready": ("input", 1),
    "user_port_axi_bresp": ("output", 2),
    "user_port_axi_bvalid": ("output", 1),
    "user_port_axi_rdata": ("output", 128),
    "user_port_axi_rid": ("output", 4),
    "user_port_axi_rlast": ("output", 1),
    "user_port_axi_rready": ("input", 1),
    "user_port_axi_rresp": ("output", 2),
    "user_port_axi_rvalid": ("output", 1),
    "user_port_axi_wdata": ("input", 128),
    "user_port_axi_wlast": ("input", 1),
    "user_port_axi_wready": ("output", 1),
    "user_port_axi_wstrb": ("input", 16),
    "user_port_axi_wvalid": ("input", 1),
    "user_rst": ("output", 1),
    "wb_ctrl_ack": ("output", 1),
    "wb_ctrl_adr": ("input", 30),
    "wb_ctrl_bte": ("input", 2),
    "wb_ctrl_cti": ("input", 3),
    "wb_ctrl_cyc": ("input", 1),
    "wb_ctrl_dat_r": ("output", 32),
    "wb_ctrl_dat_w": ("input", 32),
    "wb_ctrl_err": ("output", 1),
    "wb_ctrl_sel": ("input", 4),
    "wb_ctrl_stb": ("input", 1),
    "wb_ctrl_we": ("input", 1),
}
"""Direction, as it is declared, and bits of its ports. `ddram_dq` and `ddram_dqs_p` go to pins of
both directions all the same; `ddram_clk_n` and `ddram_dqs_n`, to nothing: a pin of an ECP5 that is
declared to be differential drives its neighbour. The sizes of AXI have a bit too many."""


def verilog() -> str:
    """Return its Verilog. Raises `NotGenerated` and `CacheError`."""
    return generated(_GENERATOR, f"{MODULE}.v", MODULE).read_text()


def description() -> str:
    """Return what its generator says of registers, steps and settings, as JSON."""
    return generated(_GENERATOR, f"{MODULE}.json", MODULE).read_text()
