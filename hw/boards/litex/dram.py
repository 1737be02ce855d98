"""LiteDRAM's standalone core for an ECPIX-5: its ports, its registers, and how its memory begins.

One MT41K256M16: 512 MiB with 16 bits of data, at 150 MHz and 300 MT/s. The core has a PLL of its
own and makes `user_clk`, 75 MHz, out of the board's 100 MHz; everything but `clk`, `rst` and
`ddram_*` belongs to `user_clk`. Its AXI port has words of 128 bits. It is shut until somebody has
initialised the memory, found delays at which it reads right, and set `ddrctrl_init_done`; all that
by the registers below, over the Wishbone port `wb_ctrl_*`.

What follows is compared with the generated core by a test.
"""

from dataclasses import dataclass

from stagecoach.hw.boards.litex.generate import generated

MODULE = "stagecoach_litedram"
"""Its name; there is no other module in its Verilog."""

_GENERATOR = "stagecoach.hw.boards.litex.dram_generator"


@dataclass(frozen=True)
class Register:
    """A register of 32 bits, or of more words, the most significant one first.

    address: in bytes; `wb_ctrl_adr` counts words. A write to one whose name is that of a deed
    (`issue`, `rst`, `inc`, `bitslip`, `clr`) does it.
    """

    address: int
    words: int = 1
    read_only: bool = False


@dataclass(frozen=True)
class Step:
    """One step of the memory's initialisation, by the registers of phase 0.

    address, bank: for `sdram_dfii_pi0_address`, `..._baddress`. control: for `sdram_dfii_control`;
    or None, and command: for `..._command`, which is then issued. wait: cycles of `user_clk` after
    it, at least.
    """

    name: str
    address: int
    bank: int
    control: int | None = None
    command: int | None = None
    wait: int = 0


SEL, CKE, ODT, RESET_N = 1, 2, 4, 8
"""Bits of `sdram_dfii_control`. With SEL the controller drives the memory, without it software."""

CS, WE, CAS, RAS, WRDATA, RDDATA = 1, 2, 4, 8, 16, 32
"""Bits of `sdram_dfii_pi*_command`."""

REGISTERS = {
    "ddrctrl_init_done": Register(0x0000),
    "ddrctrl_init_error": Register(0x0004),
    "ddrphy_dly_sel": Register(0x0800),
    "ddrphy_rdly_dq_rst": Register(0x0804),
    "ddrphy_rdly_dq_inc": Register(0x0808),
    "ddrphy_rdly_dq_bitslip_rst": Register(0x080C),
    "ddrphy_rdly_dq_bitslip": Register(0x0810),
    "ddrphy_burstdet_clr": Register(0x0814),
    "ddrphy_burstdet_seen": Register(0x0818, read_only=True),
    "sdram_dfii_control": Register(0x1000),
    "sdram_dfii_pi0_command": Register(0x1004),
    "sdram_dfii_pi0_command_issue": Register(0x1008),
    "sdram_dfii_pi0_address": Register(0x100C),
    "sdram_dfii_pi0_baddress": Register(0x1010),
    "sdram_dfii_pi0_wrdata": Register(0x1014, words=2),
    "sdram_dfii_pi0_rddata": Register(0x101C, words=2, read_only=True),
    "sdram_dfii_pi1_command": Register(0x1024),
    "sdram_dfii_pi1_command_issue": Register(0x1028),
    "sdram_dfii_pi1_address": Register(0x102C),
    "sdram_dfii_pi1_baddress": Register(0x1030),
    "sdram_dfii_pi1_wrdata": Register(0x1034, words=2),
    "sdram_dfii_pi1_rddata": Register(0x103C, words=2, read_only=True),
}
"""By name."""

STEPS = (
    Step("Release reset", 0, 0, control=ODT | RESET_N, wait=50_000),
    Step("Bring CKE high", 0, 0, control=CKE | ODT | RESET_N, wait=10_000),
    Step("Load Mode Register 2, CWL=5", 0x200, 2, command=RAS | CAS | WE | CS),
    Step("Load Mode Register 3", 0, 3, command=RAS | CAS | WE | CS),
    Step("Load Mode Register 1", 6, 1, command=RAS | CAS | WE | CS),
    Step("Load Mode Register 0, CL=6, BL=8", 0x320, 0, command=RAS | CAS | WE | CS, wait=200),
    Step("ZQ Calibration", 0x400, 0, command=WE | CS, wait=200),
)
"""Before anything is read or written."""

OCTETS = 512 << 20
"""Of the memory."""

SETTINGS = {
    "nphases": 2,
    "rdphase": 0,
    "wrphase": 1,
    "cl": 6,
    "cwl": 5,
    "databits": 16,
    "delays": 8,
    "bitslips": 4,
}
"""Of the PHY: phases, in which of them a read and a write are given, latencies in cycles of the
memory, data pins, and how many delays and bitslips there are to choose from for each 8 pins."""

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
