"""The commands of the engine about one connection, with their arguments."""

from collections.abc import Callable, Sequence

from stagecoach.host_driver import network_registers as registers
from stagecoach.host_driver.network.hardware.commands import NetworkCommands
from stagecoach.host_driver.network.hardware.flow import COUNTS, Flow
from stagecoach.host_driver.network.hardware.handover import congestion_window, timeout
from stagecoach.host_driver.network.hardware.headers import end_rows, field_rows, link_rows
from stagecoach.host_driver.network.sequence import advance
from stagecoach.host_driver.network.tcp import Segment
from stagecoach.host_driver.network_registers import NetworkOpcode
from stagecoach.hw.interface.network_entries import CONNECTION_INFO, HeaderRow

OCTETS_MOST = (1 << 14) - 1
"""Of one SEND or RELEASE."""


class EngineCommands:
    """Every command waits for its end, and raises `TransportError` if the device refuses it."""

    def __init__(self, commands: NetworkCommands):
        self._commands = commands

    def _about(self, flow: Flow, lane: int = 0) -> None:
        """Say which connection the next command is about."""
        self._commands.require_idle()
        self._commands.write(registers.TCP_CONNECTION, connection=flow.number, lane=lane)

    def _about_ends(self, flow: Flow) -> None:
        local, remote = flow.established.local, flow.established.remote
        write = self._commands.write
        write(registers.TCP_LOCAL, value=int(local[0]))
        write(registers.TCP_REMOTE, value=int(remote[0]))
        write(registers.TCP_PORTS, local=local[1], remote=remote[1])

    def _about_rings(self, flow: Flow) -> None:
        write, wide = self._commands.write, self._commands.write_wide
        wide(registers.TCP_RX_RING_LOW, registers.TCP_RX_RING_HIGH, flow.rx.address)
        wide(registers.TCP_TX_RING_LOW, registers.TCP_TX_RING_HIGH, flow.tx.address)
        write(registers.TCP_RINGS, rx=flow.rx.size, tx=flow.tx.size)

    def _write_rows(self, flow: Flow, rows: dict[HeaderRow, bytes]) -> None:
        for row, octets in rows.items():
            value = int.from_bytes(octets, "little")
            self._about(flow)
            self._commands.write(registers.TCP_HEADER_ROW, row=row)
            self._commands.write_wide(registers.TCP_HEADER_LOW, registers.TCP_HEADER_HIGH, value)
            self._commands.run(NetworkOpcode.HEADER)

    def establish(self, flow: Flow, rto_minimum: int) -> bool:
        """HEADER for all rows, then ESTABLISH; whether there was a slot for its ends."""
        established = flow.established
        flow.counted = self.counts(flow)
        ends = established.local, established.remote
        self._write_rows(flow, link_rows(flow.mac, established.local_mac) | end_rows(*ends))
        self.write_fields(flow)
        self._about(flow)
        self._about_ends(flow)
        self._about_rings(flow)
        write = self._commands.write
        edge = advance(established.next_received, established.receive_window)
        begins = timeout(established, rto_minimum)
        for register, value in (
            (registers.TCP_SEND_NEXT, established.next_sent),
            (registers.TCP_SEND_WINDOW, established.window),
            (registers.TCP_WINDOW_FROM, established.update[0]),
            (registers.TCP_RECEIVE_NEXT, established.next_received),
            (registers.TCP_RECEIVE_EDGE, edge),
            (registers.TCP_CWND, congestion_window(established)),
            (registers.TCP_SRTT8, begins.srtt8),
            (registers.TCP_RTTVAR4, begins.rttvar4),
            (registers.TCP_RTO, begins.rto),
            (registers.TCP_SEGMENT_SIZE, established.maximum_segment_size),
        ):
            write(register, value=value)
        write(
            registers.TCP_OPTIONS,
            send_shift=established.send_shift,
            receive_shift=established.receive_shift,
            sampled=int(begins.sampled),
        )
        return self._commands.accepts(NetworkOpcode.ESTABLISH)

    def write_mac(self, flow: Flow) -> None:
        """HEADER for the row with the peer's MAC address."""
        rows = link_rows(flow.mac, flow.established.local_mac)
        self._write_rows(flow, {HeaderRow.DESTINATION: rows[HeaderRow.DESTINATION]})

    def write_fields(self, flow: Flow) -> None:
        """HEADER for the row with DSCP, TTL and the sums."""
        established = flow.established
        selective = established.selective_acknowledgments
        ends = established.local, established.remote
        rows = field_rows(*ends, flow.fields, established.receive_shift, selective)
        self._write_rows(flow, rows)

    def segment(self, flow: Flow, segment: Segment) -> None:
        """SEGMENT; its payload is in the RX ring, as far as the ring may take it."""
        self._about(flow)
        write = self._commands.write
        write(registers.TCP_NUMBER, value=segment.sequence)
        write(registers.TCP_ACKNOWLEDGMENT, value=segment.acknowledgment)
        write(registers.TCP_FLAGS, window=segment.window, control=segment.flags)
        write(registers.TCP_OCTETS, value=len(segment.data))
        self._commands.run(NetworkOpcode.SEGMENT)

    def send(self, flow: Flow, octets: int) -> None:
        """SEND, of up to `OCTETS_MOST` bytes."""
        self._about(flow)
        self._commands.write(registers.TCP_OCTETS, value=octets)
        self._commands.run(NetworkOpcode.SEND)

    def release(self, flow: Flow, octets: int) -> None:
        """RELEASE, as often as it takes."""
        while octets:
            some = min(octets, OCTETS_MOST)
            self._about(flow)
            self._commands.write(registers.TCP_OCTETS, value=some)
            self._commands.run(NetworkOpcode.RELEASE)
            octets -= some

    def attach(self, flow: Flow, lane: int) -> None:
        """ATTACH: what was not released is for the LLP connection."""
        self._about(flow, lane)
        self._about_rings(flow)
        self._commands.write(registers.TCP_RECEIVE_NEXT, value=flow.released)
        self._commands.run(NetworkOpcode.ATTACH)

    def detach(self, flow: Flow, lane: int, is_late: Callable[[], bool]) -> None:
        """DETACH. Raises `TransportTimeout` if it goes on when `is_late` says so."""
        self._about(flow, lane)
        self._commands.run(NetworkOpcode.DETACH, is_late)

    def resize(self, flow: Flow, octets: int) -> None:
        """RESIZE."""
        self._about(flow)
        self._commands.write(registers.TCP_SEGMENT_SIZE, value=octets)
        self._commands.run(NetworkOpcode.RESIZE)

    def close(self, flow: Flow) -> None:
        """CLOSE."""
        self._about(flow)
        self._commands.run(NetworkOpcode.CLOSE)

    def abort(self, flow: Flow) -> None:
        """ABORT."""
        self._about(flow)
        self._commands.run(NetworkOpcode.ABORT)

    def info(self, flow: Flow) -> dict[str, int]:
        """INFO: the words of `CONNECTION_INFO`."""
        return self._info(flow, [field.name for field in CONNECTION_INFO])

    def counts(self, flow: Flow) -> dict[str, int]:
        """Of these words, those that count segments: its number need not be established."""
        return self._info(flow, COUNTS)

    def _info(self, flow: Flow, names: Sequence[str]) -> dict[str, int]:
        self._about(flow)
        self._commands.run(NetworkOpcode.INFO)
        words = {}
        for word, field in enumerate(CONNECTION_INFO):
            if field.name in names:
                self._commands.write(registers.TCP_INFO_WORD, word=word)
                words[field.name] = self._commands.read(registers.TCP_INFO)["value"]
        return words

    def forget(self, flow: Flow) -> None:
        """FORGET: its number may be used again."""
        self._about(flow)
        self._about_ends(flow)
        self._commands.run(NetworkOpcode.FORGET)
