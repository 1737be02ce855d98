"""What a bad line does to octets."""

import random
from dataclasses import dataclass

from stagecoach.hw.interface.hostlink import ESCAPE, FLAG


@dataclass
class Faults:
    """Shares of the octets that are changed, lost, or followed by one more."""

    rng: random.Random
    changed: float = 0.0
    lost: float = 0.0
    inserted: float = 0.0
    count: int = 0

    def apply(self, octets: bytes) -> bytes:
        """What arrives of octets of the line."""
        result = bytearray()
        for octet in octets:
            draw = self.rng.random()
            if draw < self.lost:
                self.count += 1
                continue
            if draw < self.lost + self.changed:
                self.count += 1
                octet ^= 1 << self.rng.randrange(8)
            result.append(octet)
            if self.rng.random() < self.inserted:
                self.count += 1
                result.append(self.rng.choice([FLAG, ESCAPE, self.rng.randrange(256)]))
        return bytes(result)
