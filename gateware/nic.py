"""The RNIC with a network of its own: RDMA from the host's memory to an Ethernet port."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_WIDTH, RnicConfig
from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.gateware.ethernet.layouts import AxiStreamSignature
from stagecoach.gateware.registers.block import ADDRESS_BITS, address_of
from stagecoach.gateware.registers.ports import AxiLiteSignature
from stagecoach.gateware.registers.split import RegisterSplit
from stagecoach.gateware.rnic import Rnic
from stagecoach.gateware.tcp.engine import TcpEngine
from stagecoach.gateware.tcp.network_registers import NetworkRegisters
from stagecoach.hw.interface.registers import NETWORK
from stagecoach.hw.interface.sizes import MTU, MTUS

FIRST_ADDRESS = address_of("NETWORK_ID", NETWORK)
"""Byte address of the first register of the network; those below are of the RNIC."""


class RnicNic(wiring.Component):
    """An iWARP RNIC, a TCP engine, and an Ethernet port.

    The RNIC is `Rnic`, its LLP port joined to the engine: connection n of the LLP port is lane n of
    the engine. Two memory ports, so that reads of one never wait for those of the other. What is at
    them is up to the design around it: the memory of the host at both, or a memory of the board at
    `t_axi`, as in `SerialNic`. A register access takes a cycle more than those of `Rnic`, and
    accesses of a direction are answered in order, whichever side they are for (`RegisterSplit`).

    `rx` is always ready. While `tx` takes nothing nothing is sent, and the rest goes on until it
    waits for that: frames are received, and what they say is done. While a memory port does not
    answer, its side waits: RDMA for `m_axi`; rings, queues and frames of the driver for `t_axi`,
    and with them in the end the LLP port.

    Parameters
    ----------
    config: sizes of the RNIC; there are as many TCP connections as QPs. Its `data_width` is 64.
    mtu: bytes of the longest IP packet, one of `MTUS`.

    Members
    -------
    s_axi: registers, AXI4-Lite slave: of the RNIC, and from `FIRST_ADDRESS` on of the network.
    m_axi: memory of the RNIC, AXI4 master. t_axi: that of the engine.
    rx, tx: frames without FCS from the MAC, and to it. Between the words of a frame, `tvalid` of
        `tx` stays high.
    time_us: microseconds modulo 2^32. It may jump ahead; by less than 2^30 while `armed`.
    deadline, armed: the earliest time at which the engine has something to do, if there is one.
    irq: level, high while an enabled bit of INTERRUPT_STATUS is set. network_irq: the same of
        NETWORK_INTERRUPT_STATUS.
    """

    def __init__(self, config: RnicConfig | None = None, mtu: int = MTU):
        self.config = config = config or RnicConfig()
        self.mtu = mtu
        if config.data_width != WORD_WIDTH:
            raise ValueError(f"data_width of a NIC is {config.data_width!r}; allowed: {WORD_WIDTH}")
        if mtu not in MTUS:
            raise ValueError(f"mtu of a NIC is {mtu!r}; allowed: {MTUS[0]} to {MTUS[-1]}")
        super().__init__(
            {
                "s_axi": In(AxiLiteSignature(ADDRESS_BITS)),
                "m_axi": Out(AxiSignature(config.data_width)),
                "t_axi": Out(AxiSignature(WORD_WIDTH)),
                "rx": In(AxiStreamSignature()),
                "tx": Out(AxiStreamSignature()),
                "time_us": In(32),
                "deadline": Out(32),
                "armed": Out(1),
                "irq": Out(1),
                "network_irq": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, mtu = self.config, self.mtu
        m.submodules.rnic = rnic = Rnic(config)
        m.submodules.engine = engine = TcpEngine(config, mtu)
        m.submodules.network = network = NetworkRegisters(config, mtu)
        m.submodules.split = split = RegisterSplit(FIRST_ADDRESS)
        for port, inner in (
            (self.s_axi, split.bus),
            (self.m_axi, rnic.m_axi),
            (self.t_axi, engine.t_axi),
            (self.rx, engine.rx),
            (self.tx, engine.tx),
        ):
            wiring.connect(m, wiring.flipped(port), inner)
        wiring.connect(m, split.below, rnic.s_axi)
        wiring.connect(m, split.above, network.bus)
        wiring.connect(m, rnic.llp, engine.llp)
        m.d.comb += [
            network.time.eq(self.time_us),
            engine.time.eq(self.time_us),
            self.deadline.eq(engine.deadline.at),
            self.armed.eq(engine.deadline.armed),
            self.irq.eq(rnic.irq),
            self.network_irq.eq(network.irq),
        ]
        self._control(m, network, engine)
        return m

    def _control(self, m: Module, network: NetworkRegisters, engine: TcpEngine) -> None:
        """What registers and engine call by the same name."""
        outside = ("bus", "irq", "time")
        for name, member in network.signature.members.items():
            if name in outside:
                continue
            source, sink = getattr(network, name), getattr(engine, name)
            if member.is_signature:
                wiring.connect(m, source, sink)
            elif member.flow is Out:
                m.d.comb += sink.eq(source)
            else:
                m.d.comb += source.eq(sink)
