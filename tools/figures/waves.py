"""Waveforms of the ports, recorded while Amaranth simulates the blocks that drive them.

A picture has one column for each cycle: what a signal was before the rising edge at its end.
"""

import json
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import wavedrom
from amaranth.sim import Simulator

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.read import ReadEngine
from stagecoach.gateware.dma.write import WriteEngine
from stagecoach.gateware.ethernet.frame_input import FrameInput
from stagecoach.gateware.ethernet.frame_output import FrameOutput
from stagecoach.gateware.layouts import LlpEventKind, QpCommandKind
from stagecoach.gateware.mpa.framer import Framer
from stagecoach.gateware.mpa.receiver import MpaReceiver
from stagecoach.host_driver.crc32c import crc32c
from stagecoach.hw.interface.wire import FPDU_CRC_OCTETS, ULPDU_LENGTH_OCTETS, Opcode
from tools.figures.svg import PAPER

CONFIG = RnicConfig(qps=2, cqs=2, stags=16, max_burst_beats=8)
_SHAPE = re.compile(r'<g id="([^"]+)">(?:<(?:path|rect) [^>]*/>)*</g>')
_USE = re.compile(r'xlink:href="#([^"]+)"')
SETTLED = 40
"""Cycles after a reset in which the blocks clear their tables, or more."""


@dataclass
class Row:
    """A signal. valid: the row without which it means nothing. values: one for each cycle."""

    name: str
    signal: Any
    valid: str = ""
    values: list[int] = field(default_factory=list)


class Recording:
    """Rows in groups, one for each channel of a port; `sample` takes a cycle of all."""

    def __init__(self, *groups: list[Row]):
        self.groups = groups
        self.rows = {row.name: row for rows in groups for row in rows}

    def sample(self, context: Any) -> None:
        """A cycle."""
        for row in self.rows.values():
            row.values.append(int(context.get(row.signal)))

    def took(self, valid: str, ready: str, count: int) -> bool:
        """Whether the last cycle had the transfer with this number, from 1."""
        both = [all(pair) for pair in self._pairs(valid, ready)]
        return bool(both) and both[-1] and sum(both) == count

    def _pairs(self, valid: str, ready: str) -> Iterable[tuple[int, int]]:
        return zip(self.rows[valid].values, self.rows[ready].values, strict=True)

    def _waves(self, rows: list[Row], cycles: range) -> list[dict[str, Any]]:
        return [self._wave(row, cycles) for row in rows]

    def _wave(self, row: Row, cycles: range) -> dict[str, Any]:
        wave, data, last = "", [], None
        for cycle in cycles:
            value: int | None = row.values[cycle]
            if row.valid and not self.rows[row.valid].values[cycle]:
                value = None
            if value == last and wave:
                wave += "."
            elif value is None:
                wave += "x"
            elif row.valid and len(row.signal) > 1:
                wave += "="
                data.append(f"{value:x}"[-4:])
            else:
                wave += str(value)
            last = value
        return {"name": row.name, "wave": wave, "data": data}

    def svg(self, title: str, before: int = 1) -> str:
        """From `before` cycles before the first handshake to the last one."""
        valid = [row.values for name, row in self.rows.items() if name.endswith("valid")]
        busy = [cycle for cycle, found in enumerate(zip(*valid, strict=True)) if any(found)]
        cycles = range(busy[0] - before, busy[-1] + 2)
        source = {
            "head": {"text": title},
            "signal": [
                {"name": "clk", "wave": "p" + "." * (len(cycles) - 1)},
                *(wave for rows in self.groups for wave in ({}, *self._waves(rows, cycles))),
            ],
        }
        drawn: str = wavedrom.render(json.dumps(source)).tostring()
        # It has every shape that there is; those that are not used are left out.
        used = set(_USE.findall(drawn))
        drawn = _SHAPE.sub(lambda shape: shape[0] if shape[1] in used else "", drawn)
        start = drawn.index(">") + 1
        paper = f'<rect width="100%" height="100%" fill="{PAPER}"/>'
        return f"{drawn[:start]}{paper}{drawn[start:]}\n"


def _simulate(module: Any, run: Any) -> None:
    simulator = Simulator(module)
    simulator.add_clock(1e-8)
    simulator.add_testbench(run)
    simulator.run()


def axi_read() -> str:
    """Two reads of host memory; the second one crosses 4 KiB, so that it is two bursts."""
    engine = ReadEngine(CONFIG, [16])
    port, (client,) = engine.m_axi, engine.clients
    recording = Recording(
        [
            Row("arvalid", port.arvalid),
            Row("arready", port.arready),
            Row("araddr", port.araddr, "arvalid"),
            Row("arlen", port.arlen, "arvalid"),
        ],
        [
            Row("rvalid", port.rvalid),
            Row("rready", port.rready),
            Row("rdata", port.rdata, "rvalid"),
            Row("rlast", port.rlast, "rvalid"),
        ],
    )

    async def run(context: Any) -> None:
        commands = [(0x1008, 40), (0x1FF8, 16)]
        beats: list[tuple[int, int, int]] = []  # from which cycle on, word, last
        context.set(client.data.ready, 1)
        context.set(port.arready, 1)
        for cycle in range(40):
            context.set(client.command.valid, bool(commands))
            if commands:
                context.set(client.command.payload.address, commands[0][0])
                context.set(client.command.payload.octets, commands[0][1])
            due = bool(beats) and cycle >= beats[0][0]
            context.set(port.rvalid, due)
            if due:
                context.set(port.rdata, beats[0][1])
                context.set(port.rlast, beats[0][2])
            recording.sample(context)
            if due and context.get(port.rready):
                beats.pop(0)
            if context.get(port.arvalid):
                length, address = context.get(port.arlen), context.get(port.araddr)
                beats += [(cycle + 4, address + 8 * n, n == length) for n in range(length + 1)]
            if context.get(client.command.ready):
                commands = commands[1:]
            await context.tick()

    _simulate(engine, run)
    return recording.svg("m_axi: reads of 40 bytes at 1008 and of 16 bytes at 1ff8")


def axi_write() -> str:
    """One write that begins and ends inside a word."""
    engine = WriteEngine(CONFIG, clients=1)
    port, (client,) = engine.m_axi, engine.clients
    recording = Recording(
        [
            Row("awvalid", port.awvalid),
            Row("awready", port.awready),
            Row("awaddr", port.awaddr, "awvalid"),
            Row("awlen", port.awlen, "awvalid"),
        ],
        [
            Row("wvalid", port.wvalid),
            Row("wready", port.wready),
            Row("wdata", port.wdata, "wvalid"),
            Row("wstrb", port.wstrb, "wvalid"),
            Row("wlast", port.wlast, "wvalid"),
        ],
        [Row("bvalid", port.bvalid), Row("bready", port.bready)],
    )

    async def run(context: Any) -> None:
        words, asked, answer = [0xA0, 0xA1, 0xA2, 0xA3], 1, 0
        for cycle in range(30):
            context.set(client.command.valid, asked)
            context.set(client.command.payload.address, 0x2004)
            context.set(client.command.payload.octets, 25)
            context.set(client.data.valid, bool(words))
            if words:
                context.set(client.data.payload.data, words[0])
            context.set(port.awready, 1)
            # The memory takes nothing in the cycle after the first word.
            context.set(port.wready, not recording.took("wvalid", "wready", 1))
            context.set(port.bvalid, bool(answer) and cycle == answer)
            recording.sample(context)
            if context.get(port.wvalid & port.wready & port.wlast):
                answer = cycle + 3
            if context.get(client.command.ready):
                asked = 0
            if context.get(client.data.ready):
                words = words[1:]
            await context.tick()

    _simulate(engine, run)
    return recording.svg("m_axi: a write of 25 bytes at 2004")


def _ulpdu() -> bytes:
    """A segment of an RDMA Write with 12 bytes of payload."""
    control = bytes((0xC1, 0x40 | Opcode.RDMA_WRITE))
    return control + struct.pack(">IQ", 0x12345678, 0x1000) + b"Hello, iWARP"


def _fpdu() -> bytes:
    ulpdu = _ulpdu()
    octets = len(ulpdu).to_bytes(ULPDU_LENGTH_OCTETS) + ulpdu
    octets += bytes(-len(octets) % 4)
    return octets + crc32c(octets).to_bytes(FPDU_CRC_OCTETS, "little")


def _words(octets: bytes) -> list[int]:
    return [int.from_bytes(octets[n : n + 8], "little") for n in range(0, len(octets), 8)]


def llp_transmit() -> str:
    """One FPDU leaves; TCP does not take a beat in one cycle."""
    framer = Framer(CONFIG)
    beat = framer.tx.payload
    recording = Recording(
        [
            Row("tx_valid", framer.tx.valid),
            Row("tx_ready", framer.tx.ready),
            Row("tx_connection", beat.connection, "tx_valid"),
            Row("tx_data", beat.data, "tx_valid"),
            Row("tx_octets", beat.octets, "tx_valid"),
            Row("tx_first", beat.first, "tx_valid"),
            Row("tx_last", beat.last, "tx_valid"),
        ],
    )
    sent = b""

    async def run(context: Any) -> None:
        nonlocal sent
        ulpdu = _ulpdu()
        words, asked = _words(bytes(ULPDU_LENGTH_OCTETS) + ulpdu), 1
        context.set(framer.job.payload.qp, 1)
        context.set(framer.job.payload.ulpdu_length, len(ulpdu))
        context.set(framer.job.payload.crc, 1)
        for _ in range(30):
            context.set(framer.job.valid, asked)
            context.set(framer.i.valid, bool(words))
            if words:
                context.set(framer.i.payload.data, words[0])
                context.set(framer.i.payload.last, len(words) == 1)
            # TCP takes nothing in the cycle after the second beat.
            context.set(framer.tx.ready, not recording.took("tx_valid", "tx_ready", 2))
            recording.sample(context)
            if context.get(framer.tx.valid & framer.tx.ready):
                sent += context.get(beat.data).to_bytes(8, "little")[: context.get(beat.octets)]
            if context.get(framer.job.ready):
                asked = 0
            if context.get(framer.i.ready):
                words = words[1:]
            await context.tick()

    _simulate(framer, run)
    assert sent == _fpdu(), sent.hex()
    return recording.svg("LLP port: an FPDU leaves")


def llp_receive() -> str:
    """The same FPDU has come: TCP says so, and is asked for it."""
    receiver = MpaReceiver(CONFIG)
    request, release = receiver.rx_request.payload, receiver.rx_release.payload
    recording = Recording(
        [
            Row("event_valid", receiver.llp_event.valid),
            Row("event_ready", receiver.llp_event.ready),
            Row("event_value", receiver.llp_event.payload.value, "event_valid"),
        ],
        [
            Row("rx_request_valid", receiver.rx_request.valid),
            Row("rx_request_position", request.position, "rx_request_valid"),
            Row("rx_request_octets", request.octets, "rx_request_valid"),
        ],
        [
            Row("rx_valid", receiver.rx.valid),
            Row("rx_ready", receiver.rx.ready),
            Row("rx_data", receiver.rx.payload, "rx_valid"),
        ],
        [
            Row("rx_release_valid", receiver.rx_release.valid),
            Row("rx_release_position", release.position, "rx_release_valid"),
        ],
    )

    async def run(context: Any) -> None:
        fpdu = _fpdu()
        for stream in (receiver.rx_request, receiver.rx_release, receiver.segment):
            context.set(stream.ready, 1)
        command, event = receiver.qp_command, receiver.llp_event
        await context.tick().repeat(SETTLED)
        for kind in (QpCommandKind.CREATE, QpCommandKind.CONNECT):
            context.set(command.payload.qp, 1)
            context.set(command.payload.kind, kind)
            context.set(command.payload.crc, 1)
            context.set(command.valid, 1)
            while not context.get(command.ready):
                await context.tick()
            await context.tick()
        context.set(command.valid, 0)
        await context.tick().repeat(SETTLED)
        context.set(event.payload.connection, 1)
        context.set(event.payload.kind, LlpEventKind.RX_AVAILABLE)
        context.set(event.payload.value, len(fpdu))
        told = due = 0
        words: list[int] = []
        for cycle in range(60):
            context.set(event.valid, cycle > 1 and not told)
            context.set(receiver.rx.valid, bool(words) and cycle >= due)
            if words:
                context.set(receiver.rx.payload, words[0])
            recording.sample(context)
            if context.get(receiver.rx.valid & receiver.rx.ready):
                words = words[1:]
            if context.get(receiver.rx_request.valid):
                start = context.get(request.position)
                words += _words(fpdu[start : start + context.get(request.octets)])
                due = cycle + 3
            told |= context.get(event.valid & event.ready)
            await context.tick()

    _simulate(receiver, run)
    return recording.svg("LLP port: the FPDU arrives")


def _arp() -> bytes:
    """An ARP request (RFC 826), which is shorter than a frame may be."""
    source, sender, target = bytes.fromhex("0200c0000201"), b"\xc0\0\2\1", b"\xc0\0\2\2"
    ethernet = b"\xff" * 6 + source + bytes.fromhex("0806")
    return ethernet + bytes.fromhex("0001080006040001") + source + sender + bytes(6) + target


def _axi_stream(port: Any) -> list[Row]:
    return [
        Row("tvalid", port.tvalid),
        Row("tready", port.tready),
        Row("tdata", port.tdata, "tvalid"),
        Row("tkeep", port.tkeep, "tvalid"),
        Row("tlast", port.tlast, "tvalid"),
        Row("tuser", port.tuser, "tvalid"),
    ]


def ethernet_transmit() -> str:
    """A short frame leaves, filled up; the MAC does not take a word in one cycle."""
    output = FrameOutput(sources=1)
    (frame,), port = output.frames, output.tx
    recording = Recording(_axi_stream(port))
    sent = b""

    async def run(context: Any) -> None:
        nonlocal sent
        words = _words(_arp())
        for _ in range(20):
            context.set(frame.valid, bool(words))
            if words:
                last = len(words) == 1
                context.set(frame.payload.data, words[0])
                context.set(frame.payload.last, last)
                context.set(frame.payload.octets, (len(_arp()) - 1) % 8 + 1 if last else 8)
            # The MAC takes nothing in the cycle after the third word.
            context.set(port.tready, not recording.took("tvalid", "tready", 3))
            recording.sample(context)
            if context.get(port.tvalid & port.tready):
                kept = context.get(port.tkeep).bit_count()
                sent += context.get(port.tdata).to_bytes(8, "little")[:kept]
            if context.get(frame.valid & frame.ready):
                words = words[1:]
            await context.tick()

    _simulate(output, run)
    assert sent == _arp().ljust(60, b"\0"), sent.hex()
    return recording.svg("Ethernet port: an ARP request leaves")


def ethernet_receive() -> str:
    """The same frame comes; the MAC has no word in one cycle."""
    frame_input = FrameInput()
    port, word = frame_input.rx, frame_input.o
    recording = Recording(
        _axi_stream(port),
        [
            Row("o_valid", word.valid),
            Row("o_index", word.p.index, "o_valid"),
            Row("o_octets", word.p.octets, "o_valid"),
            Row("o_error", word.p.error, "o_valid"),
        ],
    )

    async def run(context: Any) -> None:
        words = _words(_arp().ljust(60, b"\0"))
        for cycle in range(16):
            context.set(port.tvalid, bool(words) and cycle not in (0, 4))
            if words:
                context.set(port.tdata, words[0])
                context.set(port.tkeep, 0x0F if len(words) == 1 else 0xFF)
                context.set(port.tlast, len(words) == 1)
            recording.sample(context)
            if context.get(port.tvalid & port.tready):
                words = words[1:]
            await context.tick()

    _simulate(frame_input, run)
    return recording.svg("Ethernet port: an ARP request comes")
