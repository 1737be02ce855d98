"""What pictures are drawn with: boxes, arrows and lines of text in SVG."""

from html import escape

FONT = "ui-sans-serif, system-ui, 'Helvetica Neue', Arial, sans-serif"
INK, MUTED, LINE, PAPER = "#1b2733", "#5b6b7a", "#8795a3", "#ffffff"
HOST, QUEUES, TRANSMIT, RECEIVE, MEMORY, WIRE, PLAIN = (
    "#eef1f4",
    "#e6e4f5",
    "#dcebf9",
    "#dff1e4",
    "#fbeed5",
    "#f6e1df",
    "#ffffff",
)

Point = tuple[float, float]

_NARROW, _WIDE = set("fijlrtI .,:;|!'()[]/-"), set("mwMW")


def width_of(words: str, size: float) -> float:
    """About how wide a line is in a common sans-serif font, rather too wide than too narrow."""
    return size * sum(
        0.36 if one in _NARROW else 0.9 if one in _WIDE else 0.68 if one.isupper() else 0.58
        for one in words
    )


class Drawing:
    """A picture of `width` by `height` pixels on white paper; `title` is for those who hear it."""

    def __init__(self, width: int, height: int, title: str):
        self.width = width
        self.height = height
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="{FONT}">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto-start-reverse">'
            f'<path d="M0,0 L8,4 L0,8 z" fill="{INK}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        ]

    def svg(self) -> str:
        """The whole picture."""
        return "\n".join([*self._parts, "</svg>"]) + "\n"

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: int = 14,
        color: str = INK,
        anchor: str = "middle",
        bold: bool = False,
    ) -> None:
        """A line of text; `anchor` says what is at `x`: start, middle, end."""
        wide = width_of(words, size)
        left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
        if left < 0 or left + wide > self.width:
            raise ValueError(f"{words!r} does not fit the picture: {left:.0f}, {wide:.0f} wide")
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}" '
            f'text-anchor="{anchor}"{weight}>{escape(words, quote=False)}</text>'
        )

    def label(self, x: float, y: float, words: str, color: str = MUTED) -> None:
        """A note beside an arrow, starting at x."""
        self.text(x, y, words, 12, color, "start")

    def rectangle(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = "none",
        stroke: str = LINE,
        radius: int = 0,
    ) -> None:
        """A frame without words."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" '
            f'fill="{fill}" stroke="{stroke}"/>'
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        title: str,
        note: str = "",
        size: int = 14,
    ) -> None:
        """A block with its name and, smaller, what it does, in lines parted by `|`.

        Raises `ValueError` if a line does not fit.
        """
        self.rectangle(x, y, width, height, fill, radius=6)
        lines = note.split("|") if note else []
        for line, wide in ((title, 1.08 * size), *((line, 12.0) for line in lines)):
            if width_of(line, wide) > width - 6:
                raise ValueError(f"{line!r} does not fit a box {width:g} wide")
        top = y + height / 2 + 5 - 8 * len(lines)
        self.text(x + width / 2, top, title, size, bold=True)
        for number, line in enumerate(lines, 1):
            self.text(x + width / 2, top + 16 * number, line, 12, MUTED)

    def cell(self, x: float, y: float, width: float, height: float, fill: str, words: str) -> None:
        """A field without round corners. Raises `ValueError` if its name does not fit."""
        self.rectangle(x, y, width, height, fill)
        if width_of(words, 12) > width:
            raise ValueError(f"{words!r} does not fit a field {width:g} wide")
        self.text(x + width / 2, y + height / 2 + 4, words, 12)

    def arrow(self, *points: Point, both: bool = False, dashed: bool = False) -> None:
        """A line through the points with a head at its end."""
        start = ' marker-start="url(#head)"' if both else ""
        self.line(*points, dashed=dashed, color=INK, more=f'{start} marker-end="url(#head)"')

    def line(self, *points: Point, dashed: bool = False, color: str = LINE, more: str = "") -> None:
        """A line through the points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"'
            f"{dashes}{more}/>"
        )
