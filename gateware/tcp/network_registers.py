"""The registers of a network: commands, rings of the driver, settings, counters, the interrupt."""

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ethernet.layouts import HOST_RING, FrameFate
from stagecoach.gateware.registers.block import ADDRESS_BITS, RegisterBlock
from stagecoach.gateware.registers.ports import AxiLiteSignature
from stagecoach.gateware.tcp.builder import HeaderRow
from stagecoach.gateware.tcp.commands import NetworkCommands, staging_registers
from stagecoach.gateware.tcp.layouts import (
    TRANSMIT_SETTINGS,
    attachment_layout,
    receive_command,
    received_segment,
    release_layout,
    transmit_command,
)
from stagecoach.gateware.tcp.lookup import SECRET_BITS, lookup_command, lookup_result
from stagecoach.hw.interface.registers import NETWORK, field_width

INFO_WORD_BITS = field_width("TCP_INFO_WORD", "word", NETWORK)
"""Of the number of a word of CONNECTION_INFO."""


class NetworkRegisters(wiring.Component):
    """Holds the registers of `hw/interface/network.rdl` and carries out their commands.

    Accesses, cycles and back-pressure are those of `RegisterBlock`, and those of commands of
    `NetworkCommands`: a write to NETWORK_COMMAND waits until an earlier command has ended, and with
    it later writes; reads go on. So the driver waits until NETWORK_COMMAND_STATUS says that nothing
    is busy before it writes an argument. Nothing else waits here.

    Counts of NETWORK_FRAMES_DROPPED, NETWORK_ANSWERED, NETWORK_UNANSWERED and NETWORK_URGENT are
    modulo 2^32, those of NETWORK_FAULTS modulo 2^16; several frames of a cycle cannot be. A bit of
    NETWORK_INTERRUPT_STATUS that is set in the cycle in which the driver clears it stays set. `irq`
    follows a cycle later.

    Parameters
    ----------
    config: sizes of the device. mtu: bytes of the longest IP packet.

    Members
    -------
    bus: the register port, with addresses from those of the description on.
    irq: high while an enabled bit of NETWORK_INTERRUPT_STATUS is set.
    time: microseconds.
    settings, mac, secret: of the engine, as the driver has written them. mac: its first byte is in
        its lowest bits.
    header_write to info_read, fence_start, fence_busy: of `NetworkCommands`.
    info_word: which word of the last INFO; info: the word, a cycle later or some more.
    fate_read, value: of the frame counters.
    answer, address, answered, unanswered, urgent: of `TcpEngine`.
    queue, slots, frames, queue_consumer, slot_consumer, producer, receive_enable, transmit_enable:
        the rings of the driver. consumer, receive_idle, transmit_idle: how they are.
    interrupt, dropped, refused, failed: pulses, as `RawReceive` and `RawTransmit` have them.
    """

    def __init__(self, config: RnicConfig, mtu: int = 1500):
        self._config, self._mtu = config, mtu
        bits = config.qp_bits
        super().__init__(
            {
                "bus": In(AxiLiteSignature(ADDRESS_BITS)),
                "irq": Out(1),
                "time": In(32),
                "settings": Out(TRANSMIT_SETTINGS),
                "mac": Out(48),
                "secret": Out(SECRET_BITS),
                "header_write": Out(1),
                "header_connection": Out(bits),
                "header_row": Out(HeaderRow),
                "header_word": Out(64),
                "receive_command": Out(stream.Signature(receive_command(bits))),
                "transmit_command": Out(stream.Signature(transmit_command(bits))),
                "lookup": Out(stream.Signature(lookup_command(bits))),
                "lookup_done": In(stream.Signature(lookup_result(bits))),
                "placed": Out(stream.Signature(received_segment(bits))),
                "release": Out(stream.Signature(release_layout(bits))),
                "attachment": Out(stream.Signature(attachment_layout(bits))),
                "begun": In(1),
                "begun_edge": In(32),
                "info_done": In(1),
                "info_read": Out(bits),
                "info_word": Out(INFO_WORD_BITS),
                "info": In(32),
                "fence_start": Out(1),
                "fence_busy": In(1),
                "fate_read": Out(FrameFate),
                "value": In(32),
                "answer": Out(1),
                "address": Out(32),
                "answered": In(1),
                "unanswered": In(1),
                "urgent": In(1),
                "queue": Out(HOST_RING),
                "slots": Out(HOST_RING),
                "frames": Out(HOST_RING),
                "queue_consumer": Out(16),
                "slot_consumer": Out(16),
                "producer": Out(16),
                "consumer": In(16),
                "receive_enable": Out(1),
                "transmit_enable": Out(1),
                "receive_idle": In(1),
                "transmit_idle": In(1),
                "interrupt": In(1),
                "dropped": In(1),
                "refused": In(1),
                "failed": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.registers = registers = RegisterBlock(NETWORK)
        m.submodules.commands = commands = NetworkCommands(self._config, self._mtu)
        wiring.connect(m, wiring.flipped(self.bus), registers.bus)
        self._connect_commands(m, registers, commands)
        self._connect_rings(m, registers)
        self._count(m, registers)
        secret = [getattr(registers, f"network_secret_{number}").value for number in range(4)]
        status, set_bits = (
            registers.network_interrupt_status,
            registers.network_interrupt_status_set,
        )
        m.d.comb += [
            registers.network_sizes.connections.eq(self._config.qps),
            registers.network_sizes.mtu.eq(self._mtu),
            registers.network_time.value.eq(self.time),
            self.settings.rto_minimum.eq(registers.network_rto_minimum.value),
            self.settings.rto_maximum.eq(registers.network_rto_maximum.value),
            self.settings.r2.eq(registers.network_r2.value),
            self.settings.delayed_ack.eq(registers.network_delayed_ack.value),
            self.mac.eq(Cat(registers.network_mac_low.value, registers.network_mac_high.value)),
            self.secret.eq(Cat(secret)),
            self.address.eq(registers.network_address.value),
            self.fate_read.eq(registers.network_frame_fate.fate),
            registers.network_frames_seen.value.eq(self.value),
            set_bits.queue.eq(self.interrupt),
            set_bits.failed.eq(self.failed),
        ]
        raised = status.as_value() & registers.network_interrupt_enable.as_value()
        m.d.sync += self.irq.eq(raised.any())
        return m

    def _connect_commands(self, m: Module, registers: Any, commands: Any) -> None:
        for name in staging_registers():
            m.d.comb += getattr(commands, name).eq(getattr(registers, name))
        for name, member in commands.signature.members.items():
            if name not in self.signature.members:
                continue
            outer, inner = getattr(self, name), getattr(commands, name)
            if member.is_signature:
                wiring.connect(m, wiring.flipped(outer), inner)
            elif member.flow is Out:
                m.d.comb += outer.eq(inner)
            else:
                m.d.comb += inner.eq(outer)
        command, status = registers.network_command, registers.network_command_status
        m.d.comb += [
            commands.opcode.valid.eq(command.valid),
            commands.opcode.payload.eq(command.p.opcode),
            command.ready.eq(commands.opcode.ready),
            # A command is also under way while it waits to be taken
            status.busy.eq(commands.busy | command.valid),
            status.invalid.eq(commands.invalid),
            self.info_word.eq(registers.tcp_info_word.word),
            registers.tcp_info.value.eq(self.info),
        ]

    def _connect_rings(self, m: Module, registers: Any) -> None:
        for name in ("queue", "slots", "frames"):
            low, high = (getattr(registers, f"network_{name}_{half}") for half in ("low", "high"))
            m.d.comb += [
                getattr(self, name).base.eq(Cat(low.value, high.value)),
                getattr(self, name).log2.eq(getattr(registers.network_rings, f"{name}_log2")),
            ]
        m.d.comb += [
            self.queue_consumer.eq(registers.network_consumers.queue_consumer),
            self.slot_consumer.eq(registers.network_consumers.slot_consumer),
            self.producer.eq(registers.network_producer.producer),
            registers.network_sent.consumer.eq(self.consumer),
            self.receive_enable.eq(registers.network_enable.receive),
            self.transmit_enable.eq(registers.network_enable.transmit),
            self.answer.eq(registers.network_enable.answer),
            registers.network_status.answers.eq(self._config.answers),
            registers.network_status.receive_idle.eq(self.receive_idle),
            registers.network_status.transmit_idle.eq(self.transmit_idle),
        ]

    def _count(self, m: Module, registers: Any) -> None:
        for pulse, field in (
            (self.dropped, registers.network_frames_dropped.value),
            (self.answered, registers.network_answered.value),
            (self.unanswered, registers.network_unanswered.value),
            (self.urgent, registers.network_urgent.value),
            (self.refused, registers.network_faults.refused),
            (self.failed, registers.network_faults.failed),
        ):
            count = Signal.like(field)
            m.d.comb += field.eq(count)
            with m.If(pulse):
                m.d.sync += count.eq(count + 1)
