"""Addresses of InfiniBand, which a program may import: an iWARP device has none."""

from stagecoach.pyverbs.base import absent
from stagecoach.pyverbs.wr import CONNECTED_ONLY

AH = absent("AH", CONNECTED_ONLY)
AHAttr = absent("AHAttr", CONNECTED_ONLY)
GID = absent("GID", CONNECTED_ONLY)
GRH = absent("GRH", CONNECTED_ONLY)
GlobalRoute = absent("GlobalRoute", CONNECTED_ONLY)
