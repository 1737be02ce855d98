"""A board and its host: what is connected to what."""

from stagecoach.hw.boards.board import NAMES, find
from tools.figures.svg import (
    HOST,
    INK,
    MEMORY,
    MUTED,
    QUEUES,
    RECEIVE,
    TRANSMIT,
    WIRE,
    Drawing,
)


def board() -> str:
    """The host with program, memory and TCP on the left, the board on the right."""
    boards = [find(name) for name in NAMES]
    (baud,) = {each.baud for each in boards}
    (clock,) = {each.clock_hz for each in boards}
    d = Drawing(1000, 470, "A board on a serial line of its host")
    d.rectangle(20, 40, 400, 350, HOST, INK, 10)
    d.text(220, 30, "host", 15, bold=True)
    d.box(40, 60, 360, 50, TRANSMIT, "your program", "verbs: stagecoach")
    d.box(40, 150, 170, 60, QUEUES, "driver", "SerialDevice,|host link")
    d.box(230, 150, 170, 60, MEMORY, "memory", "rings and|registered buffers")
    d.box(40, 260, 170, 60, WIRE, "TCP of the kernel", "one connection|for each QP")
    d.box(230, 260, 170, 60, HOST, "serial port", "/dev/ttyUSB1")
    d.arrow((125, 110), (125, 150), both=True)
    d.arrow((315, 110), (315, 150), both=True)
    d.arrow((210, 180), (230, 180), both=True)
    d.arrow((105, 210), (105, 260), both=True)
    d.label(62, 240, "FPDUs")
    d.arrow((175, 210), (175, 236), (290, 236), (290, 260), both=True)
    d.label(306, 248, "frames")
    d.arrow((125, 320), (125, 440), both=True)
    d.label(137, 430, "network, to the peer")
    d.rectangle(560, 40, 420, 350, HOST, INK, 10)
    d.text(770, 30, "board: " + ", ".join(NAMES), 15, bold=True)
    d.box(580, 255, 110, 70, WIRE, "USB bridge", "FTDI")
    d.rectangle(710, 60, 250, 312, "#ffffff", INK, 8)
    d.text(835, 364, f"FPGA: ECP5 at {clock // 1_000_000} MHz", 13, MUTED)
    d.box(730, 260, 210, 60, QUEUES, "hostlink: UART, link", "frames, CRC, repeating")
    d.box(730, 100, 210, 70, RECEIVE, "device", "the same gateware, with|fewer QPs and STags")
    for x, words, both in ((760, "s_axi", False), (815, "m_axi", True), (880, "LLP", True)):
        d.arrow((x, 260), (x, 170), both=both)
        d.label(x + 6, 220, words)
    d.arrow((400, 290), (580, 290), both=True)
    d.text(490, 280, "USB", 12, MUTED)
    d.arrow((690, 290), (730, 290), both=True)
    d.text(640, 430, f"The serial line has {baud:,} baud. Memory and TCP are the host's:", 13)
    d.text(640, 450, "the device reaches both by messages on that line (docs/hostlink.md).", 13)
    return d.svg()
