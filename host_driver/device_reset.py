"""Brings a device to its initial state, regardless of earlier use."""

from contextlib import suppress

from stagecoach.host_driver import registers
from stagecoach.host_driver.answers import read_state
from stagecoach.host_driver.device import CommandOpcode, Device
from stagecoach.host_driver.enums import QPState
from stagecoach.host_driver.transport.base import TransportError


def reset_device(device: Device) -> None:
    """Disables every CQ, destroys every QP and SRQ and empties the STag table.

    The device has no command for all of that at once. When this returns it reaches nothing of the
    host's memory, also none that was given to it by a process which is dead by now.
    """
    with device.lock:
        # First the rings: what is stopped below would write to them.
        for number in range(device.attr.max_cq + 1):
            device._disable_ring(number)
        for number in range(device.attr.max_qp):
            state, _ = read_state(device, number)
            if state != QPState.RESET:
                device.command(CommandOpcode.QP_DESTROY)
                with suppress(TransportError):  # it had no stream
                    device.transport.detach(number, 0.0)
        # Any ring may be that of an SRQ; no QP takes from it now.
        for number in range(device.attr.max_qp):
            device.write(registers.QP_NUMBER, qp=number)
            device.command(CommandOpcode.SRQ_DESTROY)
        device.command(CommandOpcode.STAG_RESET)
