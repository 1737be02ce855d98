"""Writes the Verilog of LiteEth's MAC and RGMII PHY for an ECP5 into the current folder.

LiteEth's own generator has no MAC with plain streams. What is left out: padding of short frames,
which the device does, the PHY's reset pin, which is no reset of the MAC, and its MDIO.
"""

import sys
from pathlib import Path
from typing import Any

from liteeth.mac.core import LiteEthMACCore
from liteeth.phy.ecp5rgmii import LiteEthPHYRGMII
from litex.build.lattice.common import lattice_ecp5_trellis_special_overrides
from litex.gen import LiteXModule
from litex.gen.fhdl.verilog import convert
from migen import ClockDomain, Record, Signal

from stagecoach.hw.boards.litex.generate import without_comments

DATA_BITS = 64
RX_DELAY_SECONDS = 0
"""Of data behind the received clock, inside the FPGA: the PHY of an ECPIX-5 delays its clock."""


class Mac(LiteXModule):
    """MAC and PHY with ports for everything that LiteX would have registers for.

    `ports`: its ports.
    """

    def __init__(self) -> None:
        self.cd_sys = ClockDomain("sys")
        clocks = Record([("tx", 1), ("rx", 1)], name="rgmii_clocks")
        data = [("tx_ctl", 1), ("tx_data", 4), ("rx_ctl", 1), ("rx_data", 4)]
        pads = Record(data, name="rgmii")
        self.phy = phy = LiteEthPHYRGMII(
            clocks, pads, with_hw_init_reset=False, rx_delay=RX_DELAY_SECONDS
        )
        self.core = core = LiteEthMACCore(phy, DATA_BITS, with_padding=False)
        # The PHY leaves it low, and without it the MAC of 2024.12 takes any FCS for a right one.
        self.comb += phy.source.last_be.eq(phy.source.last)
        self.ports = {self.cd_sys.clk, self.cd_sys.rst, *clocks.flatten(), *pads.flatten()}

        for field in ("valid", "data", "last", "last_be", "error"):
            self._input(f"tx_{field}", getattr(core.sink, field))
            self._output(f"rx_{field}", getattr(core.source, field))
        self._output("tx_ready", core.sink.ready)
        self._input("rx_ready", core.source.ready)
        self._input("eth_rst", phy.crg._reset.storage)
        self._output("crc_errors", core.rx_datapath.crc_errors.status)
        self._output("preamble_errors", core.rx_datapath.preamble_errors.status)
        status = phy.rx.inband_status.fields
        for name in ("link_status", "clock_speed", "duplex_status"):
            self._output(name, getattr(status, name))

    def _port(self, name: str, bits: int) -> Any:
        port = Signal(bits, name=name)
        self.ports.add(port)
        return port

    def _input(self, name: str, inside: Any) -> None:
        self.comb += inside.eq(self._port(name, len(inside)))

    def _output(self, name: str, inside: Any) -> None:
        self.comb += self._port(name, len(inside)).eq(inside)


def main(name: str) -> None:
    """Writes `name`.v with the module `name`."""
    mac = Mac()
    text = convert(
        mac, mac.ports, name=name, special_overrides=lattice_ecp5_trellis_special_overrides
    )
    Path(f"{name}.v").write_text(without_comments(str(text)))


if __name__ == "__main__":
    main(sys.argv[1])
