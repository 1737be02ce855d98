"""The NIC with the engine in gateware that tests share: small, and built soon rather than fast."""

from pathlib import Path

from stagecoach.gateware.config import RnicConfig
from stagecoach.sim.build import build_nic

NIC_CONFIG = RnicConfig(qps=8)
"""Six connections are open at once in a case against Linux."""


def nic_library() -> Path:
    """The compiled NIC, built if it is not in the cache."""
    return build_nic(NIC_CONFIG, level="-O1")
