"""What `stagecoach rping` does."""

from stagecoach.cli.open_device import open_device
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.locate import Locator
from stagecoach.ulp.rping.ends import Settings, ping
from stagecoach.ulp.rping.serving import serve


def rping(server: bool, settings: Settings, locator: Locator) -> int:
    """Runs one end of rping on a device; returns the exit status."""
    with Context(open_device(locator, settings.address)) as context:
        if server:
            serve(context, settings)
        else:
            ping(context, settings)
    return 0
