"""Window scaling (RFC 7323, 2) and avoidance of silly windows (RFC 9293, 3.8.6.2)."""

from stagecoach.sim.model.tcp.options import SHIFT_MAX

WINDOW_FIELD_MAX = 0xFFFF


def shift_for(buffer: int) -> int:
    """Smallest Rcv.Wind.Shift with which the window field holds a window of ``buffer`` bytes."""
    shift = 0
    while buffer >> shift > WINDOW_FIELD_MAX:
        shift += 1
    if shift > SHIFT_MAX:
        raise ValueError(f"buffer of {buffer} bytes (at most {WINDOW_FIELD_MAX << SHIFT_MAX})")
    return shift


def receiver_edge(edge: int, following: int, room: int, buffer: int, mss: int, shift: int) -> int:
    """Right edge to announce: position after the last byte that is welcome.

    ``edge`` was announced, ``following`` is RCV.NXT, ``room`` the free part of ``buffer``. The
    edge never moves left, and right only by min(buffer / 2, MSS) or more (3.8.6.2.2), and only
    so that the field with its shift says it exactly or less.
    """
    wanted = following + (min(room, WINDOW_FIELD_MAX << shift) >> shift << shift)
    return wanted if wanted - edge >= min(buffer // 2, mss) else edge


def field_for(edge: int, following: int, shift: int) -> int:
    """The window field: rounded down, so that the true edge is never exceeded."""
    return min((edge - following) >> shift, WINDOW_FIELD_MAX)
