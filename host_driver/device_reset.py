"""Brings a device to its initial state, whoever used it before."""

from contextlib import suppress
from typing import TYPE_CHECKING

from stagecoach.host_driver.answers import read_state
from stagecoach.host_driver.enums import QPState
from stagecoach.host_driver.transport.base import TransportError

if TYPE_CHECKING:
    from stagecoach.host_driver.context import Context


def reset_device(context: "Context") -> None:
    """Disables every ring, destroys every QP and empties the STag table.

    The device has no command for all of that at once. When this returns it reaches nothing of the
    host's memory, also none that was given to it by a process which is dead by now.
    """
    from stagecoach.host_driver.context import CommandOpcode

    with context.lock:
        # First the rings: what is stopped below would write to them.
        for number in range(context.attr.max_cq + 1):
            context.disable_ring(number)
        for number in range(context.attr.max_qp):
            state, _ = read_state(context, number)
            if state != QPState.RESET:
                context.command(CommandOpcode.QP_DESTROY)
                with suppress(TransportError):  # it had no stream
                    context.transport.detach(number, 0.0)
        context.command(CommandOpcode.STAG_RESET)
