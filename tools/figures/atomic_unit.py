"""The way of an operation through the atomic unit."""

from tools.figures.svg import MEMORY, QUEUES, RECEIVE, TRANSMIT, Drawing


def atomic_unit() -> str:
    """From the transmitter through both engines of memory and back."""
    d = Drawing(960, 330, "The way of an operation through the atomic unit")
    d.box(20, 110, 120, 50, TRANSMIT, "transmitter")
    d.box(230, 110, 150, 50, QUEUES, "accept", "an earlier one on it?")
    d.box(470, 40, 130, 50, MEMORY, "read engine")
    d.box(470, 180, 150, 50, QUEUES, "compute", "in order")
    d.box(710, 40, 130, 50, MEMORY, "write engine")
    d.box(710, 180, 130, 50, RECEIVE, "settle", "in order")
    d.box(710, 262, 130, 50, TRANSMIT, "respond", "in order")
    d.arrow((140, 135), (230, 135))
    d.text(185, 126, "request", 12)
    d.arrow((380, 122), (420, 122), (420, 65), (470, 65))
    d.label(425, 58, "read")
    d.arrow((380, 148), (420, 148), (420, 205), (470, 205))
    d.label(386, 224, "which one")
    d.arrow((535, 90), (535, 180))
    d.label(543, 138, "word")
    d.arrow((500, 230), (500, 256), (590, 256), (590, 230))
    d.text(545, 274, "results, for later ones", 12)
    d.arrow((620, 195), (660, 195), (660, 65), (710, 65))
    d.label(668, 58, "write")
    d.arrow((620, 215), (710, 215))
    d.label(634, 240, "no write")
    d.arrow((775, 90), (775, 180))
    d.label(783, 138, "write response")
    d.arrow((775, 230), (775, 262))
    d.arrow((710, 287), (80, 287), (80, 160))
    d.label(90, 279, "response")
    return d.svg()
