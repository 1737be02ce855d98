"""LiteDRAM's standalone core for an ECPIX-5 as its driver sees it: registers, first steps, sizes.

One MT41K256M16: 512 MiB with 16 bits of data, at 150 MHz and 300 MT/s. The registers are at a
Wishbone port of the core, `wb_ctrl_*`; the driver reaches them by those of `memory.rdl`. By them it
initialises the memory, finds delays at which each byte lane reads right, and opens the user port.

All of it is compared with the generated core by a test.
"""

from dataclasses import dataclass

USER_CLOCK_HZ = 75_000_000
"""Of `user_clk`, in which the core's registers and its user port are; half the memory's clock."""


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

GEOMETRY = {"bankbits": 3, "rowbits": 15, "colbits": 10}
"""Bits of the addresses of the memory. A column has as many bits as there are data pins."""

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
