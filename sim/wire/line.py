"""One direction of a wire: when each frame arrives, and what arrives."""

import heapq
from collections import Counter

from stagecoach.sim.wire.impairments import Direction, Impairments


class Line:
    """Frames of one direction, with rate, delay and the other impairments.

    Times are integers in picoseconds, of any clock that does not go back. A frame begins when the
    one before it has ended, and arrives as a whole, `delay_us` after its last bit was sent. A lost
    frame takes its time on the wire as well. The second copy of a duplicated frame is sent
    directly after the first. A reordered frame arrives 1 to 4 of its own wire times and a half
    later, so that so many frames of its length, if they are sent without gaps, overtake it; its
    copy does not wait. A corrupted frame arrives with one bit wrong, in both copies.

    Attributes
    ----------
    counts: frames that were sent, lost, duplicated, reordered, corrupted; a lost one is nothing
        else.
    """

    def __init__(self, impairments: Impairments, direction: Direction) -> None:
        self.counts: Counter[str] = Counter()
        self._impairments = impairments
        self._direction = direction
        self._delay_ps = impairments.delay_ps
        self._number = 0
        self._free_at = 0
        self._copies = 0
        # Time of arrival, then order of sending.
        self._flying: list[tuple[int, int, bytes]] = []

    def push(self, frame: bytes, now_ps: int) -> None:
        """Sends a frame."""
        fate = self._impairments.fate(self._direction, self._number, len(frame))
        self._number += 1
        wire_time = self._impairments.wire_time_ps(len(frame))
        end = self._occupy(wire_time, now_ps)
        self.counts["sent"] += 1
        if fate.lost:
            self.counts["lost"] += 1
            return
        self.counts["duplicated"] += fate.duplicated
        self.counts["reordered"] += bool(fate.late_frames)
        self.counts["corrupted"] += fate.flipped is not None
        if fate.flipped is not None:
            frame = _with_flipped(frame, fate.flipped)
        late = wire_time * fate.late_frames + wire_time // 2 if fate.late_frames else 0
        self._fly(frame, end + late)
        if fate.duplicated:
            self._fly(frame, self._occupy(wire_time, now_ps))

    def pass_by(self, octets: int, now_ps: int) -> None:
        """Something that is no frame takes its time on the wire, and does not arrive."""
        self._occupy(self._impairments.wire_time_ps(octets), now_ps)

    def lag_ps(self, now_ps: int) -> int:
        """For how long the wire is still busy, or for how long a frame has waited to be taken,
        whatever is more.
        """
        waited = now_ps - self._flying[0][0] if self._flying else 0
        return max(0, self._free_at - now_ps, waited)

    @property
    def next_arrival_ps(self) -> int | None:
        """When the next frame arrives; `None` if none is under way."""
        return self._flying[0][0] if self._flying else None

    def first(self, now_ps: int) -> tuple[int, bytes] | None:
        """The next frame that has arrived, with its time; it stays. `None` if there is none."""
        if not self._flying or self._flying[0][0] > now_ps:
            return None
        time, _, frame = self._flying[0]
        return time, frame

    def pop(self) -> None:
        """Takes the frame that `first` gave."""
        heapq.heappop(self._flying)

    def _occupy(self, wire_time: int, now_ps: int) -> int:
        """Has the wire send for so long; returns when that ends."""
        self._free_at = max(now_ps, self._free_at) + wire_time
        return self._free_at

    def _fly(self, frame: bytes, end_ps: int) -> None:
        heapq.heappush(self._flying, (end_ps + self._delay_ps, self._copies, frame))
        self._copies += 1


def _with_flipped(frame: bytes, bit: int) -> bytes:
    octets = bytearray(frame)
    octets[bit // 8] ^= 1 << bit % 8
    return bytes(octets)
