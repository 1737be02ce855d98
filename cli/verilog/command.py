"""What `stagecoach verilog` does."""

from pathlib import Path

from stagecoach.gateware.config import RnicConfig
from stagecoach.hw.verilog import core_file, device_verilog, module_name


def verilog(config: RnicConfig, prefix: str, output: Path, mtu: int | None = None) -> int:
    """Writes the device, and a core file beside a file `*.v`; returns the exit status."""
    _require_writable(output)
    text = device_verilog(config, prefix, mtu)
    output.write_text(text)
    print(f"{output}: module {prefix}{module_name(mtu)}, {len(text.splitlines()):,} lines")
    if output.suffix == ".v":
        core = output.with_suffix(".core")
        core.write_text(core_file(config, prefix, output.name, mtu))
        print(f"{core}: the same for FuseSoC")
    return 0


def _require_writable(path: Path) -> None:
    """Makes the folder, and leaves a file that is there as it is, until the device is exported.

    Raises `OSError` if the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a"):
        pass
    if is_new:
        path.unlink()
