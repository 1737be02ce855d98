"""LiteEth's MAC with its RGMII PHY for an ECP5, as a module of Verilog.

Its streams have words of 64 bits. It has three clocks: `sys_clk`, that of the PHY's receiving side,
and that of its sending side, which is the same. Both stop when the PHY stops its clock.
"""

from stagecoach.hw.boards.litex.generate import generated

MODULE = "stagecoach_liteeth_mac"
"""Its name; there is no other module in its Verilog."""

PORTS = {
    "sys_clk": ("input", 1),
    "sys_rst": ("input", 1),
    # Of both sides of the PHY; asynchronous.
    "eth_rst": ("input", 1),
    "rgmii_clocks_rx": ("input", 1),
    "rgmii_clocks_tx": ("output", 1),
    "rgmii_rx_ctl": ("input", 1),
    "rgmii_rx_data": ("input", 4),
    "rgmii_tx_ctl": ("output", 1),
    "rgmii_tx_data": ("output", 4),
    "tx_valid": ("input", 1),
    "tx_ready": ("output", 1),
    "tx_data": ("input", 64),
    "tx_last": ("input", 1),
    # The last byte, one bit, in the last word; 0 in others.
    "tx_last_be": ("input", 8),
    "tx_error": ("input", 8),  # has no effect
    "rx_valid": ("output", 1),
    "rx_ready": ("input", 1),
    "rx_data": ("output", 64),
    "rx_last": ("output", 1),
    # The lowest bit is that of the last byte; bits above are left over from other words.
    "rx_last_be": ("output", 8),
    "rx_error": ("output", 8),
    # Of frames since the last reset; in sys_clk.
    "crc_errors": ("output", 32),
    "preamble_errors": ("output", 32),
    # What the PHY says between frames; in the clock of its receiving side.
    "link_status": ("output", 1),
    "clock_speed": ("output", 2),
    "duplex_status": ("output", 1),
}
"""Direction and bits of its ports."""


def verilog() -> str:
    """Return its Verilog. Raises `NotGenerated` and `CacheError`."""
    return generated("stagecoach.hw.boards.litex.mac_generator", f"{MODULE}.v", MODULE).read_text()
