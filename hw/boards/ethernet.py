"""Gigabit Ethernet of a board: LiteEth's MAC and RGMII PHY behind the device's ports for frames."""

from typing import Any

from amaranth.hdl import ClockDomain, ClockSignal, Instance, Module, Signal
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import AxiStreamSignature
from stagecoach.gateware.ethernet.link_watch import INBAND_STATUS, SILENT_CYCLES, LinkWatch
from stagecoach.gateware.ethernet.mac_streams import MacStreams
from stagecoach.hw.boards.litex.mac import MODULE, verilog

ACTIVITY_BITS = 4
"""The activity that `LinkWatch` sees changes every 2^3 cycles of the PHY: 64 ns at 125 MHz."""

RGMII = wiring.Signature(
    {
        "tx_clk": Out(1),
        "tx_ctl": Out(1),
        "tx_data": Out(4),
        "rx_clk": In(1),
        "rx_ctl": In(1),
        "rx_data": In(4),
    }
)
"""Pins of a PHY, seen from the FPGA. Both clocks are delayed: by the PHY, by the FPGA."""


PHY_HZ = 125_000_000
"""Of the PHY's clocks with a link of 1,000 Mb/s."""

PHY_RESET_SECONDS = 0.01


class EthernetPort(wiring.Component):
    """The MAC of a board, with what watches its link and what keeps its frames whole.

    Of each direction at most 32 words of 64 bits are on their way between the clocks. The MAC adds
    and checks preamble and FCS. It waits 12 bytes after each frame that it sends, and sends
    without a gap what comes without one: the device has to have a frame whole, and `sync` at least
    15.7 MHz. A frame whose FCS is wrong, or that the link lost in the middle, comes with `tuser`.
    One without preamble, or of 4 bytes or fewer after it, does not come. The PHY's error signal
    is not looked at; the FCS has to tell.

    What happens to frames without a link is said by `MacStreams`, and when the MAC is reset by
    `LinkWatch`. All counters wrap at 2^32.

    Parameters
    ----------
    silent_cycles: of `LinkWatch`.

    Members
    -------
    rgmii: the PHY's pins. tx, rx: frames of the device, as in `MacStreams`.
    link, up: as in `LinkWatch`.
    crc_errors: received frames with a wrong FCS. preamble_errors: frames without preamble.
    discarded: frames of the device that were not sent.
    """

    def __init__(self, silent_cycles: int = SILENT_CYCLES):
        self._silent_cycles = silent_cycles
        super().__init__(
            {
                "rgmii": Out(RGMII),
                "tx": In(AxiStreamSignature()),
                "rx": Out(AxiStreamSignature()),
                "link": Out(INBAND_STATUS),
                "up": Out(1),
                "crc_errors": Out(32),
                "preamble_errors": Out(32),
                "discarded": Out(32),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        if platform is not None:
            platform.add_file(f"{MODULE}.v", verilog())
        m.submodules.watch = watch = LinkWatch(self._silent_cycles)
        m.submodules.streams = streams = MacStreams()
        rgmii = self.rgmii

        m.domains.phy = phy = ClockDomain(reset_less=True, local=True)
        m.d.comb += phy.clk.eq(rgmii.rx_clk)
        cycles = Signal(ACTIVITY_BITS)
        m.d.phy += cycles.eq(cycles + 1)

        counted = {"crc_errors": Signal(32), "preamble_errors": Signal(32)}
        mac_reset = watch.mac_reset  # a flip-flop: on the PHY's side it acts at once
        status = Signal(INBAND_STATUS)
        tx, rx = streams.mac_tx, streams.mac_rx
        m.submodules.mac = Instance(
            MODULE,
            i_sys_clk=ClockSignal(),
            i_sys_rst=mac_reset,
            i_eth_rst=mac_reset,
            i_rgmii_clocks_rx=rgmii.rx_clk,
            o_rgmii_clocks_tx=rgmii.tx_clk,
            i_rgmii_rx_ctl=rgmii.rx_ctl,
            i_rgmii_rx_data=rgmii.rx_data,
            o_rgmii_tx_ctl=rgmii.tx_ctl,
            o_rgmii_tx_data=rgmii.tx_data,
            i_tx_valid=tx.valid,
            o_tx_ready=tx.ready,
            i_tx_data=tx.data,
            i_tx_last=tx.last,
            i_tx_last_be=tx.last_be,
            i_tx_error=tx.error,
            o_rx_valid=rx.valid,
            i_rx_ready=rx.ready,
            o_rx_data=rx.data,
            o_rx_last=rx.last,
            o_rx_last_be=rx.last_be,
            o_rx_error=rx.error,
            o_link_status=status.up,
            o_clock_speed=status.speed,
            o_duplex_status=status.full_duplex,
            **{f"o_{name}": count for name, count in counted.items()},
        )
        m.d.comb += [
            watch.activity.eq(cycles[-1]),
            watch.status.eq(status),
            streams.up.eq(watch.up),
            streams.mac_reset.eq(watch.mac_reset),
            self.link.eq(watch.link),
            self.up.eq(watch.up),
            self.discarded.eq(streams.discarded),
        ]
        wiring.connect(m, wiring.flipped(self.tx), streams.tx)
        wiring.connect(m, streams.rx, wiring.flipped(self.rx))

        # The MAC's counters begin again with each reset, and count singly.
        for name, count in counted.items():
            before = Signal(name=f"{name}_before")
            m.d.sync += before.eq(count[0] & ~mac_reset)
            total = getattr(self, name)
            with m.If(~mac_reset & (before != count[0])):
                m.d.sync += total.eq(total + 1)
        return m


class PhyReset(wiring.Component):
    """Says that the PHY has to be in reset, for 10 ms from the reset of `sync` on.

    Parameters
    ----------
    clock_hz: of `sync`.

    Members
    -------
    o: in reset.
    """

    def __init__(self, clock_hz: int):
        self._cycles = int(clock_hz * PHY_RESET_SECONDS)
        super().__init__({"o": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal(range(self._cycles + 1), init=self._cycles)
        m.d.sync += self.o.eq(left != 0)
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        return m


def connect_phy(m: Module, platform: Any, port: EthernetPort, clock_hz: int) -> None:
    """Joins a port with the board's PHY, `eth_rgmii`, whose clock is made known to the tools.

    clock_hz: of `sync`. The PHY works as its pins tell it to: its registers (MDIO) are left alone.
    """
    names = ("rst", "mdio", "mdc", "tx_clk", "tx_ctrl", "tx_data", "rx_clk", "rx_ctrl", "rx_data")
    pads = platform.request("eth_rgmii", dir=dict.fromkeys(names, "-"))
    platform.add_clock_constraint(pads.rx_clk.io, PHY_HZ)
    for name, signal in (("clk", "clk"), ("ctrl", "ctl"), ("data", "data")):
        m.submodules[f"rx_{name}"] = pin = io.Buffer("i", getattr(pads, f"rx_{name}"))
        m.d.comb += getattr(port.rgmii, f"rx_{signal}").eq(pin.i)
        m.submodules[f"tx_{name}"] = pin = io.Buffer("o", getattr(pads, f"tx_{name}"))
        m.d.comb += pin.o.eq(getattr(port.rgmii, f"tx_{signal}"))
    m.submodules.phy_reset = reset = PhyReset(clock_hz)
    m.submodules.rst = pin = io.Buffer("o", pads.rst)
    m.d.comb += pin.o.eq(reset.o)
