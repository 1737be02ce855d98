"""A NIC behind a UART: what boards with a serial bridge, Ethernet and memory have in common."""

from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.board_memory import ID_WIDTH, BoardMemoryPaths
from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.gateware.ethernet.layouts import AxiStreamSignature
from stagecoach.gateware.hostlink.nic_link import NicLink
from stagecoach.gateware.hostlink.serial_rnic import RETRY_SECONDS
from stagecoach.gateware.hostlink.uart import UartReceiver, UartTransmitter, divisor_of
from stagecoach.gateware.nic import RnicNic
from stagecoach.gateware.registers.block import address_of
from stagecoach.gateware.registers.split import RegisterSplit
from stagecoach.gateware.tcp.microseconds import Microseconds
from stagecoach.gateware.wishbone.ports import WishboneSignature
from stagecoach.gateware.wishbone.window import WishboneWindow
from stagecoach.hw.interface.hostlink import MAXIMUM_BEATS
from stagecoach.hw.interface.registers import MEMORY
from stagecoach.hw.interface.sizes import MTU

WINDOW_ADDRESS = address_of("MEMORY_ID", MEMORY)
"""Byte address of the first register of the window to a memory controller."""


class SerialNic(wiring.Component):
    """An RNIC with an Ethernet port of its own, set up over two serial pins.

    Registers, interrupts and the host's memory are at the other end of the link. Rings of
    connections, and the frames and notices of the driver, are in the board's memory, and so is what
    RDMA reaches from `DEVICE_MEMORY_BASE` on. The host reaches it, too (`BoardBridge`). So a host
    that is slow, or gone, holds up neither frames nor connections; it holds up RDMA to and from its
    own memory, and after that RDMA to the board's (`BoardMemoryPaths`).

    Each session begins with a reset of the device and of the window, but not of `uart_tx`, of the
    time, or of what is at `memory`: bursts under way there end as they should, and words that had
    not come write nothing.
    `restart` is high for 16 cycles: a frame at `tx` may have ended without `tlast`, and of one at
    `rx` the rest is dropped.

    A register access takes a cycle more with a window than without (`RegisterSplit`).

    Parameters
    ----------
    config: sizes of the device. clock_hz: the core clock. baud: of the UART.
    memory_log2: base 2 logarithm of the bytes of the board's memory, whose addresses begin at 0.
    mtu: of `RnicNic`.
    has_controller: there is a window to the registers of the memory's controller.

    Members
    -------
    uart_rx, uart_tx: the pins; `uart_rx` of any clock.
    rx, tx: frames, as `RnicNic` has them.
    memory: to the board's memory, see `BoardMemoryPaths`.
    restart: the device begins anew.
    controller: with `has_controller`, to the memory controller, in the domain `wishbone`.
    """

    def __init__(
        self,
        config: RnicConfig,
        clock_hz: int,
        baud: int,
        memory_log2: int,
        mtu: int = MTU,
        *,
        has_controller: bool = False,
    ):
        self._clock_hz = clock_hz
        self._divisor = divisor_of(clock_hz, baud)
        self._has_controller = has_controller
        retry_cycles = int(RETRY_SECONDS * clock_hz)
        self._link = NicLink(config, clock_hz, retry_cycles, memory_log2)
        self._nic = RnicNic(config, mtu)
        self._paths = BoardMemoryPaths(memory_log2, MAXIMUM_BEATS)
        ports = {
            "uart_rx": In(1),
            "uart_tx": Out(1, init=1),
            "rx": In(AxiStreamSignature()),
            "tx": Out(AxiStreamSignature()),
            "memory": Out(AxiSignature(id_width=ID_WIDTH)),
            "restart": Out(1),
        }
        if has_controller:
            ports["controller"] = Out(WishboneSignature())
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The device begins anew with each session of the host.
        m.domains.device = device = ClockDomain(local=True)
        nic = self._nic
        m.submodules.nic = DomainRenamer("device")(nic)
        m.submodules.link = link = self._link
        m.submodules.receiver = receiver = UartReceiver(self._divisor)
        m.submodules.transmitter = transmitter = UartTransmitter(self._divisor)
        m.submodules.microseconds = microseconds = Microseconds(self._clock_hz)
        reset = Signal(init=1)
        m.d.sync += reset.eq(link.restart)
        m.d.comb += device.clk.eq(ClockSignal())
        if platform is None:
            m.d.comb += device.rst.eq(reset)
        else:  # an ECP5: the reset goes to all flip-flops, and so over a global net
            m.submodules.global_reset = Instance("DCCA", i_CLKI=reset, i_CE=1, o_CLKO=device.rst)
        m.d.comb += [
            receiver.rx.eq(self.uart_rx),
            self.uart_tx.eq(transmitter.tx),
            link.irq[0].eq(nic.irq),
            link.irq[1].eq(nic.network_irq),
            nic.time_us.eq(microseconds.time),
            self.restart.eq(reset),
        ]
        wiring.connect(m, receiver.o, link.i)
        wiring.connect(m, link.o, transmitter.i)
        wiring.connect(m, wiring.flipped(self.rx), nic.rx)
        wiring.connect(m, nic.tx, wiring.flipped(self.tx))
        self._join_registers(m, link, nic)
        self._join_memory(m, link, nic, reset)
        return m

    def _join_registers(self, m: Module, link: NicLink, nic: RnicNic) -> None:
        if not self._has_controller:
            wiring.connect(m, link.registers, nic.s_axi)
            return
        split, window = RegisterSplit(WINDOW_ADDRESS), WishboneWindow()
        m.submodules.split = DomainRenamer("device")(split)
        m.submodules.window = DomainRenamer("device")(window)
        wiring.connect(m, link.registers, split.bus)
        wiring.connect(m, split.below, nic.s_axi)
        wiring.connect(m, split.above, window.bus)
        wiring.connect(m, window.slave, wiring.flipped(self.controller))

    def _join_memory(self, m: Module, link: NicLink, nic: RnicNic, reset: Signal) -> None:
        m.submodules.paths = paths = self._paths
        wiring.connect(m, nic.m_axi, paths.m_axi)
        wiring.connect(m, nic.t_axi, paths.t_axi)
        wiring.connect(m, link.board, paths.h_axi)
        wiring.connect(m, paths.host, link.memory)
        wiring.connect(m, paths.memory, wiring.flipped(self.memory))
        # The link begins anew a cycle before the device does.
        m.d.comb += paths.isolate.eq(link.restart | reset)
