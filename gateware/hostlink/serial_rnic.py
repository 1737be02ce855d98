"""The whole device behind a UART: what boards with a serial bridge have in common."""

from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.hostlink.link import HostLink
from stagecoach.gateware.hostlink.uart import UartReceiver, UartTransmitter, divisor_of
from stagecoach.gateware.rnic import Rnic

RETRY_SECONDS = 0.1
"""Without an acknowledgement, until the device sends everything again."""


class SerialRnic(wiring.Component):
    """An RNIC whose registers, host memory and LLP are at the other end of two serial pins.

    Parameters
    ----------
    config: its sizes. clock_hz: the core clock. baud: of the UART.

    Members
    -------
    rx, tx: the pins; `rx` of any clock.
    """

    def __init__(self, config: RnicConfig, clock_hz: int, baud: int):
        self._config = config
        self._clock_hz = clock_hz
        self._divisor = divisor_of(clock_hz, baud)
        super().__init__({"rx": In(1), "tx": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The device begins anew with each session of the host.
        m.domains.device = device = ClockDomain(local=True)
        m.submodules.rnic = rnic = DomainRenamer("device")(Rnic(self._config))
        m.submodules.link = link = HostLink(
            self._config, self._clock_hz, int(RETRY_SECONDS * self._clock_hz)
        )
        m.submodules.receiver = receiver = UartReceiver(self._divisor)
        m.submodules.transmitter = transmitter = UartTransmitter(self._divisor)
        reset = Signal(init=1)
        m.d.sync += reset.eq(link.restart)
        m.d.comb += device.clk.eq(ClockSignal())
        if platform is None:
            m.d.comb += device.rst.eq(reset)
        else:  # an ECP5: the reset goes to all flip-flops, and so over a global net
            m.submodules.global_reset = Instance("DCCA", i_CLKI=reset, i_CE=1, o_CLKO=device.rst)
        m.d.comb += [receiver.rx.eq(self.rx), self.tx.eq(transmitter.tx), link.irq.eq(rnic.irq)]
        wiring.connect(m, receiver.o, link.i)
        wiring.connect(m, link.o, transmitter.i)
        wiring.connect(m, link.registers, rnic.s_axi)
        wiring.connect(m, rnic.m_axi, link.memory)
        wiring.connect(m, rnic.llp, link.llp)
        return m
