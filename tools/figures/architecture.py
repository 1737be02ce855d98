"""The blocks of the device, the host above it and TCP beside it."""

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


def architecture() -> str:
    """One row each for control and memory, what transmits, atomics, what receives."""
    d = Drawing(1030, 620, "The blocks of the device, the host above it and TCP beside it")
    d.box(20, 16, 770, 62, HOST, "Host", "host_driver: verbs, connection manager, transports")
    d.rectangle(20, 140, 770, 464, stroke=INK, radius=10)
    d.text(405, 594, "Device: gateware/rnic.py", 13, MUTED)
    d.arrow((100, 78), (100, 164), both=True)
    d.label(108, 122, "AXI4-Lite registers")
    d.arrow((274, 164), (274, 78))
    d.label(282, 122, "interrupt")
    d.arrow((490, 78), (490, 164))
    d.label(498, 122, "AXI4 reads")
    d.arrow((680, 164), (680, 78))
    d.label(688, 122, "AXI4 writes")
    # Control and memory
    d.box(40, 164, 130, 66, QUEUES, "registers", "doorbells,|commands")
    d.box(200, 164, 190, 66, QUEUES, "queues", "rings, scheduler,|completions, QP states")
    d.box(420, 164, 150, 66, MEMORY, "dma: read", "bursts in flight, gather")
    d.box(600, 164, 170, 66, MEMORY, "dma: write", "placer, write responses")
    d.arrow((170, 197), (200, 197), both=True)
    d.arrow((420, 197), (390, 197))
    # Transmit
    d.box(200, 300, 190, 66, TRANSMIT, "rdmap: transmitter", "one FPDU a visit, MULPDU")
    d.box(420, 300, 150, 66, TRANSMIT, "ddp: assembler", "headers and payload")
    d.box(600, 300, 170, 66, TRANSMIT, "mpa: framer", "length, pad, CRC32c")
    d.arrow((250, 230), (250, 300))
    d.label(258, 276, "work")
    d.arrow((510, 230), (510, 300))
    d.label(518, 276, "payload")
    d.arrow((390, 333), (420, 333))
    d.arrow((570, 333), (600, 333))
    # Atomics: the transmitter asks; the unit is a client of both engines of memory.
    d.box(412, 410, 166, 50, MEMORY, "rdmap: atomic unit", "one step at a time")
    d.arrow((372, 366), (372, 435), (412, 435), both=True)
    d.label(318, 420, "atomics")
    d.arrow((440, 230), (440, 282), (407, 282), (407, 390), (450, 390), (450, 410))
    d.label(455, 256, "word")
    d.arrow((540, 410), (540, 390), (592, 390), (592, 282), (700, 282), (700, 230))
    d.label(708, 256, "new word")
    # Receive
    d.box(200, 500, 190, 66, RECEIVE, "rdmap: receiver", "all checks before|the first byte")
    d.box(600, 500, 170, 66, RECEIVE, "mpa: receiver", "store, check CRC,|then pass on")
    d.arrow((600, 548), (390, 548))
    d.label(450, 542, "verified FPDUs")
    d.arrow((390, 516), (583, 516), (583, 262), (640, 262), (640, 230))
    d.label(450, 510, "placements")
    d.arrow((220, 500), (220, 366))
    d.label(228, 484, "inbound requests")
    # The STag table serves both directions.
    d.box(40, 400, 130, 66, MEMORY, "stag: table", "rights, bounds, PD")
    d.arrow((200, 350), (105, 350), (105, 400), both=True)
    d.arrow((200, 533), (105, 533), (105, 466), both=True)
    # TCP: the engine has a memory port of its own.
    d.box(
        *(846, 284, 170, 154),
        WIRE,
        "tcp: engine",
        "gateware/nic.py: RNIC,|engine, Ethernet port.|One stream per QP;|ARP, SYN and RST"
        "|by the driver",
    )
    d.arrow((931, 284), (931, 47), (790, 47), both=True)
    d.label(824, 110, "AXI4: rings of")
    d.label(824, 126, "TCP, frames")
    d.box(
        *(846, 452, 170, 132),
        WIRE,
        "or in software",
        "sockets of the kernel,|or the reference TCP|(tcp: reference) with|Ethernet and IPv4",
    )
    d.arrow((770, 333), (846, 333))
    d.arrow((846, 533), (770, 533))
    d.text(808, 422, "LLP", 12, MUTED)
    d.text(808, 438, "port", 12, MUTED)
    return d.svg()
