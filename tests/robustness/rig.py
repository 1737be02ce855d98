"""What tests of disturbed devices share."""

from stagecoach.host_driver import Cause, Context, QPState, RecvWR, WCStatus
from stagecoach.sim.disturbed import DisturbedDevice
from tests.integration.rig import End, RawPeer

SECONDS = 60.0


def device_of(context: Context) -> DisturbedDevice:
    """The device that can be disturbed."""
    device = context.transport
    assert isinstance(device, DisturbedDevice)
    return device


class Receiver(End):
    """A QP with a peer that sends any octets, and with `count` receives of `octets` each.

    The receives stand one after the other, at the beginning of a buffer of `buffer_octets`.
    """

    def __init__(self, context: Context, count: int, octets: int, buffer_octets: int = 4096):
        super().__init__(context, buffer_octets)
        self.count = count
        self.peer = RawPeer(self.qp)
        self.qp.post_recv(*(RecvWR(n, [self.element(octets * n, octets)]) for n in range(count)))

    def check_receives(self, count: int | None = None) -> None:
        """So many messages, or all, are completed in order, and nothing else."""
        count = self.count if count is None else count
        completions = self.cq.wait(count, SECONDS)
        assert [(wc.wr_id, wc.status) for wc in completions] == [
            (n, WCStatus.SUCCESS) for n in range(count)
        ]
        assert self.cq.poll() == []

    def stop(self) -> None:
        """Ends, without an error: the stop waits for all that was begun."""
        assert self.qp.query_state() == (QPState.RTS, Cause.NONE)
        self.close()
        self.peer.close()
