"""Draws docs/figures/architecture.svg: `python docs/figures/architecture.py`."""

from pathlib import Path

WIDTH, HEIGHT = 960, 560
FONT = "ui-sans-serif, system-ui, 'Helvetica Neue', Arial, sans-serif"
INK, MUTED, LINE = "#1b2733", "#5b6b7a", "#8795a3"
HOST, QUEUES, TRANSMIT, RECEIVE, MEMORY, WIRE = (
    "#eef1f4",
    "#e6e4f5",
    "#dcebf9",
    "#dff1e4",
    "#fbeed5",
    "#f6e1df",
)
TARGET = Path(__file__).with_name("architecture.svg")


def text(x: float, y: float, words: str, size: int = 14, color: str = INK, **more: str) -> str:
    """A line of text, centered at x."""
    options = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}" text-anchor="middle"'
        f"{options}>{words}</text>"
    )


def box(x: int, y: int, width: int, height: int, fill: str, title: str, note: str = "") -> str:
    """A block with its name and, smaller, what it does."""
    middle = x + width / 2
    parts = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" '
        f'stroke="{LINE}"/>'
    ]
    lines = note.split("|") if note else []
    top = y + height / 2 + 5 - 8 * len(lines)
    parts.append(text(middle, top, title, font_weight="600"))
    for number, line in enumerate(lines, 1):
        parts.append(text(middle, top + 16 * number, line, 12, MUTED))
    return "\n".join(parts)


def arrow(*points: tuple[int, int], both: bool = False) -> str:
    """A line through the points with a head at its end."""
    path = " ".join(f"{x},{y}" for x, y in points)
    start = ' marker-start="url(#head)"' if both else ""
    return (
        f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="1.5"{start} '
        'marker-end="url(#head)"/>'
    )


def label(x: int, y: int, words: str) -> str:
    """A note beside an arrow, starting at x."""
    return f'<text x="{x}" y="{y}" font-size="12" fill="{MUTED}">{words}</text>'


def draw() -> str:
    """The whole figure."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="{FONT}">',
        "<title>The blocks of the device, the host above it and TCP beside it</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" fill="{INK}"/>'
        "</marker></defs>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        # The host
        box(20, 16, 770, 62, HOST, "Host", "host_driver: verbs, connection manager, transports"),
        # The device
        f'<rect x="20" y="140" width="770" height="404" rx="10" fill="none" stroke="{INK}" '
        'stroke-width="1.5"/>',
        text(405, 534, "Device: gateware/rnic.py", 13, MUTED),
        arrow((100, 78), (100, 164), both=True),
        label(108, 122, "AXI4-Lite registers"),
        arrow((274, 164), (274, 78)),
        label(282, 122, "interrupt"),
        arrow((490, 78), (490, 164)),
        label(498, 122, "AXI4 reads"),
        arrow((680, 164), (680, 78)),
        label(688, 122, "AXI4 writes"),
        # First row: control and memory
        box(40, 164, 130, 66, QUEUES, "registers", "doorbells,|commands"),
        box(200, 164, 190, 66, QUEUES, "queues", "rings, scheduler,|completions, QP states"),
        box(420, 164, 150, 66, MEMORY, "dma: read", "bursts in flight, gather"),
        box(600, 164, 170, 66, MEMORY, "dma: write", "placer, write responses"),
        arrow((170, 197), (200, 197), both=True),
        arrow((420, 197), (390, 197)),
        # Second row: transmit
        box(200, 290, 190, 66, TRANSMIT, "rdmap: transmitter", "one FPDU a visit, MULPDU"),
        box(420, 290, 150, 66, TRANSMIT, "ddp: assembler", "headers and payload"),
        box(600, 290, 170, 66, TRANSMIT, "mpa: framer", "length, pad, CRC32c"),
        arrow((250, 230), (250, 290)),
        label(258, 264, "work"),
        arrow((495, 230), (495, 290)),
        label(503, 264, "payload"),
        arrow((390, 323), (420, 323)),
        arrow((570, 323), (600, 323)),
        # Third row: receive
        box(200, 440, 190, 66, RECEIVE, "rdmap: receiver", "all checks before|the first octet"),
        box(600, 440, 170, 66, RECEIVE, "mpa: receiver", "store, check CRC,|then pass on"),
        arrow((600, 473), (390, 473)),
        label(440, 464, "verified FPDUs"),
        arrow((350, 440), (350, 398), (585, 398), (585, 248), (640, 248), (640, 230)),
        label(440, 390, "placements"),
        arrow((220, 440), (220, 356)),
        label(228, 424, "inbound requests"),
        # Atomics: the transmitter asks, the unit reads and writes.
        box(420, 405, 150, 44, MEMORY, "rdmap: atomic unit", "one step at a time"),
        arrow((372, 356), (372, 427), (420, 427), both=True),
        # The STag table serves both directions.
        box(40, 365, 130, 66, MEMORY, "stag: table", "rights, bounds, PD"),
        arrow((200, 340), (105, 340), (105, 365), both=True),
        arrow((200, 473), (105, 473), (105, 431), both=True),
        # TCP
        box(
            *(836, 290, 108, 216),
            WIRE,
            "TCP",
            "one stream|per QP:|kernel sockets|in simulation,|a hardware|engine later",
        ),
        arrow((770, 323), (836, 323)),
        arrow((836, 473), (770, 473)),
        text(813, 396, "LLP", 12, MUTED),
        text(813, 412, "port", 12, MUTED),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    TARGET.write_text(draw())
