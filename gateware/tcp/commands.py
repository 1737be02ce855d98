"""Carries out the commands that the driver starts in the NETWORK_COMMAND register."""

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.encodings import encoding
from stagecoach.gateware.registers.block import register_layout
from stagecoach.gateware.tcp.builder import HeaderRow
from stagecoach.gateware.tcp.layouts import (
    HEADERS_OCTETS,
    RING_LEAST_BITS,
    RING_MOST_BITS,
    ReceiveOperation,
    TransmitOperation,
    attachment_layout,
    receive_command,
    received_segment,
    release_layout,
    transmit_command,
)
from stagecoach.gateware.tcp.lookup import lookup_command, lookup_result
from stagecoach.gateware.tcp.receive_processor import SHIFT_MOST
from stagecoach.hw.interface.registers import NETWORK, encodings, registers

NetworkOpcode = encoding(
    "NetworkOpcode",
    {"NONE": 0} | encodings(NETWORK)["network_command"],
    unsigned(8),
    "NETWORK_COMMAND.opcode.",
)

_FIRST_STEPS = {
    NetworkOpcode.HEADER: "HEADER",
    NetworkOpcode.ESTABLISH: "RECEIVE",
    NetworkOpcode.ATTACH: "RECEIVE",
    NetworkOpcode.DISCARD: "RECEIVE",
    NetworkOpcode.SEGMENT: "SEGMENT",
    NetworkOpcode.RELEASE: "RELEASE",
    NetworkOpcode.DETACH: "LANE",
    NetworkOpcode.FORGET: "ENDS",
}
"""States after the check; of all others it is TRANSMIT."""

_STAGING_PREFIX, _INFO_PREFIX = "TCP_", "TCP_INFO"

MOST_SIZE = RING_MOST_BITS - RING_LEAST_BITS
"""Of a ring, as `receive_command` has it."""

RING_ALIGNMENT_BITS = 3
"""log2 of what the address of a ring is a multiple of."""


def staging_registers() -> dict[str, data.Layout]:
    """Layout of every register with arguments, by its name in lower case."""
    return {
        register.name.lower(): register_layout(register)
        for register in registers(NETWORK)
        if register.name.startswith(_STAGING_PREFIX) and not register.name.startswith(_INFO_PREFIX)
    }


class NetworkCommands(wiring.Component):
    """Takes one opcode at a time, and its arguments from the staging registers.

    ESTABLISH: the receiving side begins; when its note has come out of memory's answers (`begun`),
    the sending side does; then the lookup gets the ends, so that no segment is found before. If it
    has no slot the command is invalid, and the connection rests: nothing comes for it, until its
    number is established anew. ATTACH: the receiving side, then the LLP port, which hears of what
    is there, then the sending side, which grants a window. DETACH is the other way round, without
    the receiving side; it and FORGET end with the fence: what was under way before is over. INFO
    ends when the words are there. A FORGET of ends that are not there is no error.

    The next opcode is taken when the last one is done. A command takes 2 cycles, 1 for each
    neighbour that takes its part at once, and what it waits for: ESTABLISH for `begun` and the
    lookup, INFO for the transmit processor, DETACH and FORGET for the fence. One that is invalid
    takes 2.

    Whatever a neighbour does not take, or does not answer, holds up the command, and all that
    follow, for as long as that lasts; nothing else waits for this block. So memory that never
    answers holds up ESTABLISH, DETACH and FORGET, a MAC that takes nothing DETACH and FORGET, and
    what the transmit processor waits for all that go there. No counter.

    Parameters
    ----------
    config: sizes of the device: as many connections as QPs, each of which is a lane, too.
    mtu: bytes of the longest IP packet.

    Members
    -------
    opcode: the NETWORK_COMMAND register.
    staging registers: inputs, named as in the description in lower case. They stand still while a
        command waits or is `busy`.
    header_write, header_connection, header_row, header_word: to the headers of connections.
    receive_command, transmit_command: to both processors.
    lookup, lookup_done: of the demultiplexer. placed, release: segments and releases of the driver.
    attachment: whose stream a lane has.
    begun, begun_edge: a pulse, what a BEGIN of the receiving side says was said, and the right edge
        of its window. info_done: a pulse, the words of an INFO are there. Both come at any time
        from the cycle on in which it is offered.
    info_read: of which connection the last INFO was.
    fence_start, fence_busy: to the fence.
    busy: a command is under way. invalid: the last one had no valid opcode or argument, or found no
        slot.
    """

    def __init__(self, config: RnicConfig, mtu: int = 1500):
        self._config, self._mtu = config, mtu
        bits = config.qp_bits
        super().__init__(
            {
                "opcode": In(stream.Signature(8)),
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
                "fence_start": Out(1),
                "fence_busy": In(1),
                "busy": Out(1),
                "invalid": Out(1),
            }
            | {name: In(layout) for name, layout in staging_registers().items()}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        opcode = Signal(NetworkOpcode)
        answered = Signal()  # `begun`, or `info_done`: a processor may do all before it takes
        with m.If(self.begun | self.info_done):
            m.d.sync += answered.eq(1)
        edge = Signal(32)  # of the connection that begins; it stands while that is offered
        with m.If(self.begun & ~self.transmit_command.valid):
            m.d.sync += edge.eq(self.begun_edge)
        valid = self._check(m, opcode)
        self._connect_receive(m, opcode)
        self._connect_transmit(m, opcode, edge)
        self._connect_others(m, opcode)

        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):  # waits for an opcode
                m.d.comb += self.opcode.ready.eq(1)
                with m.If(self.opcode.valid):
                    m.d.sync += opcode.eq(self.opcode.payload)
                    m.next = "CHECK"
            with m.State("CHECK"):  # checks the arguments
                m.d.sync += [self.invalid.eq(~valid), answered.eq(0)]
                with m.If(~valid):
                    m.next = "IDLE"
                for one, step in _FIRST_STEPS.items():
                    with m.Elif(opcode == one):
                        m.next = step
                with m.Else():
                    m.next = "TRANSMIT"
            with m.State("HEADER"):  # writes a row
                m.d.comb += self.header_write.eq(1)
                m.next = "IDLE"
            with m.State("SEGMENT"):  # waits until the receiving side has the segment
                m.d.comb += self.placed.valid.eq(1)
                with m.If(self.placed.ready):
                    m.next = "IDLE"
            with m.State("RELEASE"):  # waits until the receiving side knows
                m.d.comb += self.release.valid.eq(1)
                with m.If(self.release.ready):
                    m.next = "IDLE"
            with m.State("RECEIVE"):  # waits until the receive processor knows
                m.d.comb += self.receive_command.valid.eq(1)
                with m.If(self.receive_command.ready):
                    m.next = "IDLE"
                    with m.If(opcode == NetworkOpcode.ESTABLISH):
                        m.next = "BEGUN"
                    with m.Elif(opcode == NetworkOpcode.ATTACH):
                        m.next = "LANE"
            with m.State("BEGUN"):  # waits until nothing of the number's last connection is said
                with m.If(answered):
                    m.next = "TRANSMIT"
            with m.State("LANE"):  # waits until the LLP port knows
                m.d.comb += self.attachment.valid.eq(1)
                with m.If(self.attachment.ready):
                    m.next = "TRANSMIT"
            with m.State("TRANSMIT"):  # waits until the transmit processor knows
                m.d.comb += self.transmit_command.valid.eq(1)
                with m.If(self.transmit_command.ready):
                    m.next = "IDLE"
                    with m.Switch(opcode):
                        with m.Case(NetworkOpcode.ESTABLISH):
                            m.next = "ENDS"
                        with m.Case(NetworkOpcode.DETACH):
                            m.next = "FENCE"
                        with m.Case(NetworkOpcode.INFO):
                            m.d.sync += self.info_read.eq(self.tcp_connection.connection)
                            m.next = "INFO"
            with m.State("INFO"):  # waits until the words are there
                with m.If(answered):
                    m.next = "IDLE"
            with m.State("ENDS"):  # waits until the lookup has taken them
                m.d.comb += self.lookup.valid.eq(1)
                with m.If(self.lookup.ready):
                    m.next = "SLOT"
            with m.State("SLOT"):  # waits until they are inserted, or deleted
                m.d.comb += self.lookup_done.ready.eq(1)
                with m.If(self.lookup_done.valid):
                    m.next = "FENCE"
                    with m.If(opcode == NetworkOpcode.ESTABLISH):
                        m.d.sync += self.invalid.eq(~self.lookup_done.p.found)
                        m.next = "IDLE"
            with m.State("FENCE"):  # starts the fence
                m.d.comb += self.fence_start.eq(1)
                m.next = "FENCE_WAIT"
            with m.State("FENCE_WAIT"):  # waits until what was begun before has ended
                with m.If(~self.fence_busy):
                    m.next = "IDLE"
        return m

    def _check(self, m: Module, opcode: Signal) -> Signal:
        """Whether opcode and arguments are valid; these stand still while a command waits."""
        connections = self._config.qps
        connection, lane, emss, octets, row, receives, sends, shifts = (Signal() for _ in range(8))
        rings = self.tcp_rings
        m.d.sync += [
            connection.eq(self.tcp_connection.connection < connections),
            lane.eq(self.tcp_connection.lane < connections),
            emss.eq(
                (self.tcp_segment_size.value != 0)
                & (self.tcp_segment_size.value <= self._mtu - HEADERS_OCTETS)
            ),
            octets.eq(self.tcp_octets.value != 0),
            row.eq(Cat(self.tcp_header_row.row == one.value for one in HeaderRow).any()),
            receives.eq(
                (rings.rx <= MOST_SIZE) & (self.tcp_rx_ring_low.value[:RING_ALIGNMENT_BITS] == 0)
            ),
            sends.eq(
                (rings.tx <= MOST_SIZE) & (self.tcp_tx_ring_low.value[:RING_ALIGNMENT_BITS] == 0)
            ),
            shifts.eq(
                (self.tcp_options.send_shift <= SHIFT_MOST)
                & (self.tcp_options.receive_shift <= SHIFT_MOST)
            ),
        ]
        valid = Signal()
        with m.Switch(opcode):
            with m.Case(NetworkOpcode.NONE):
                m.d.comb += valid.eq(0)
            with m.Case(NetworkOpcode.HEADER):
                m.d.comb += valid.eq(connection & row)
            with m.Case(NetworkOpcode.ESTABLISH):
                m.d.comb += valid.eq(connection & emss & receives & sends & shifts)
            with m.Case(NetworkOpcode.SEND, NetworkOpcode.RELEASE):
                m.d.comb += valid.eq(connection & octets)
            with m.Case(NetworkOpcode.ATTACH):
                m.d.comb += valid.eq(connection & lane & receives)
            with m.Case(NetworkOpcode.DETACH):
                m.d.comb += valid.eq(connection & lane)
            with m.Case(NetworkOpcode.RESIZE):
                m.d.comb += valid.eq(connection & emss)
            with m.Case(
                NetworkOpcode.SEGMENT,
                NetworkOpcode.CLOSE,
                NetworkOpcode.ABORT,
                NetworkOpcode.DISCARD,
                NetworkOpcode.INFO,
                NetworkOpcode.FORGET,
            ):
                m.d.comb += valid.eq(connection)
        return valid

    def _connect_receive(self, m: Module, opcode: Signal) -> None:
        command = self.receive_command.p
        with m.Switch(opcode):
            with m.Case(NetworkOpcode.ATTACH):
                m.d.comb += command.operation.eq(ReceiveOperation.ATTACH)
            with m.Case(NetworkOpcode.DISCARD):
                m.d.comb += command.operation.eq(ReceiveOperation.DISCARD)
            with m.Default():
                m.d.comb += command.operation.eq(ReceiveOperation.BEGIN)
        segment = self.placed.p.segment
        m.d.comb += [
            command.connection.eq(self.tcp_connection.connection),
            command.next.eq(self.tcp_receive_next.value),
            command.edge.eq(self.tcp_receive_edge.value),
            command.ring.eq(Cat(self.tcp_rx_ring_low.value, self.tcp_rx_ring_high.value)),
            command.size.eq(self.tcp_rings.rx),
            command.shift.eq(self.tcp_options.receive_shift),
            self.placed.p.found.eq(1),
            self.placed.p.placed.eq(1),
            self.placed.p.connection.eq(self.tcp_connection.connection),
            segment.payload.eq(self.tcp_octets.value),
            segment.sequence.eq(self.tcp_number.value),
            segment.acknowledgment.eq(self.tcp_acknowledgment.value),
            segment.flags.eq(self.tcp_flags.control),
            segment.window.eq(self.tcp_flags.window),
            self.release.p.connection.eq(self.tcp_connection.connection),
            self.release.p.relative.eq(1),
            self.release.p.value.eq(self.tcp_octets.value),
        ]

    def _connect_transmit(self, m: Module, opcode: Signal, edge: Signal) -> None:
        command = self.transmit_command.p
        operations = {
            NetworkOpcode.SEND: TransmitOperation.SEND,
            NetworkOpcode.CLOSE: TransmitOperation.FINISH,
            NetworkOpcode.ABORT: TransmitOperation.ABORT,
            NetworkOpcode.RESIZE: TransmitOperation.RESIZE,
            NetworkOpcode.ATTACH: TransmitOperation.ATTACH,
            NetworkOpcode.DETACH: TransmitOperation.DETACH,
            NetworkOpcode.INFO: TransmitOperation.INFO,
        }
        with m.Switch(opcode):
            for one, operation in operations.items():
                with m.Case(one):
                    m.d.comb += command.operation.eq(operation)
            with m.Default():
                m.d.comb += command.operation.eq(TransmitOperation.BEGIN)
        m.d.comb += [
            command.connection.eq(self.tcp_connection.connection),
            command.number.eq(self.tcp_send_next.value),
            command.window.eq(self.tcp_send_window.value),
            command.window_from.eq(self.tcp_window_from.value),
            command.edge.eq(edge),
            command.announced.eq(self.tcp_receive_edge.value),
            command.cwnd.eq(self.tcp_cwnd.value),
            command.rto.sampled.eq(self.tcp_options.sampled),
            command.rto.srtt8.eq(self.tcp_srtt8.value),
            command.rto.rttvar4.eq(self.tcp_rttvar4.value),
            command.rto.timeout.eq(self.tcp_rto.value),
            command.ring.eq(Cat(self.tcp_tx_ring_low.value, self.tcp_tx_ring_high.value)),
            command.size.eq(self.tcp_rings.tx),
            command.shift.eq(self.tcp_options.send_shift),
            command.emss.eq(self.tcp_segment_size.value),
            command.octets.eq(self.tcp_octets.value),
        ]

    def _connect_others(self, m: Module, opcode: Signal) -> None:
        """Headers, the lookup, lanes."""
        ends = self.lookup.p
        lane = self.attachment.p
        m.d.comb += [
            self.header_connection.eq(self.tcp_connection.connection),
            self.header_row.eq(self.tcp_header_row.row),
            self.header_word.eq(Cat(self.tcp_header_low.value, self.tcp_header_high.value)),
            ends.delete.eq(opcode == NetworkOpcode.FORGET),
            ends.connection.eq(self.tcp_connection.connection),
            ends.key.local.eq(self.tcp_local.value),
            ends.key.remote.eq(self.tcp_remote.value),
            ends.key.local_port.eq(self.tcp_ports.local),
            ends.key.remote_port.eq(self.tcp_ports.remote),
            lane.lane.eq(self.tcp_connection.lane),
            lane.connection.eq(self.tcp_connection.connection),
            lane.attached.eq(opcode == NetworkOpcode.ATTACH),
            lane.base.eq(self.tcp_receive_next.value),
            lane.ring.eq(Cat(self.tcp_rx_ring_low.value, self.tcp_rx_ring_high.value)),
            lane.size.eq(self.tcp_rings.rx),
        ]
