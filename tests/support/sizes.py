"""The smallest and the largest device."""

from stagecoach.gateware.config import DATA_WIDTHS, RnicConfig
from stagecoach.hw.interface.sizes import SIZES

SMALLEST = RnicConfig(
    data_width=min(DATA_WIDTHS),
    counters=False,
    **{name: size.least for name, size in SIZES.items()},
)
LARGEST = RnicConfig(
    data_width=max(DATA_WIDTHS),
    counters=True,
    **{name: size.most for name, size in SIZES.items()},
)
