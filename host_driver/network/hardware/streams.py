"""What the driver does with the stream of a connection: sends, reads, closes."""

from stagecoach.host_driver.network.hardware.early import place
from stagecoach.host_driver.network.hardware.engine_commands import OCTETS_MOST, EngineCommands
from stagecoach.host_driver.network.hardware.flow import Flow
from stagecoach.host_driver.network.sequence import advance
from stagecoach.host_driver.network.tcp import Segment
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import StreamClosed

_NO_MORE = "no byte of the connection will come any more"


class Streams:
    """All calls are under one lock of the caller, and raise as those of `NetworkPort` do.

    Parameters
    ----------
    mss: bytes of the longest segment that the MTU allows.
    """

    def __init__(self, engine: EngineCommands, mss: int):
        self._engine = engine
        self._mss = mss

    def send(self, flow: Flow, octets: bytes) -> int:
        """Write to one that has not ended; how many bytes were taken."""
        self.require_own(flow)
        if flow.shut:
            raise StreamClosed("this end of the connection is closed")
        if flow.room < len(octets):
            flow.acknowledge(self._engine.info(flow)["una"])
        taken = 0
        while taken < len(octets) and flow.room:
            piece = octets[taken : taken + min(flow.room, OCTETS_MOST)]
            flow.tx.write(flow.end, piece)
            self._engine.send(flow, len(piece))
            flow.end = advance(flow.end, len(piece))
            flow.pieces.append(flow.end)
            taken += len(piece)
        flow.hungry = taken < len(octets)
        return taken

    def receive(self, flow: Flow, maximum: int) -> bytes:
        """Take bytes; of one that has ended those that were left."""
        if flow.ended is not None:
            return self._receive_left(flow, maximum)
        self.require_own(flow)
        unread = 0 if flow.discards else flow.unread
        if not unread and flow.fin:
            raise StreamClosed(_NO_MORE)
        octets = min(unread, maximum)
        taken = flow.rx.read(flow.released, octets)
        self._release(flow, octets)
        return taken

    @staticmethod
    def _receive_left(flow: Flow, maximum: int) -> bytes:
        assert flow.ended is not None
        if flow.ended.how is not StreamEnd.CLOSED:
            raise KeyError(flow.handle)
        if not flow.left:
            raise StreamClosed(_NO_MORE)
        taken, flow.left = flow.left[:maximum], flow.left[maximum:]
        return taken

    @staticmethod
    def require_own(flow: Flow) -> None:
        """Raises `StreamClosed` if the device has the stream."""
        if flow.lane is not None:
            raise StreamClosed(f"connection {flow.lane} of the device has the stream")

    def _release(self, flow: Flow, octets: int) -> None:
        self._engine.release(flow, octets)
        flow.released = advance(flow.released, octets)

    def discard(self, flow: Flow) -> None:
        """Nobody reads what has come."""
        self._release(flow, flow.unread)

    def shutdown(self, flow: Flow) -> None:
        """FIN after all that was sent; nothing is read any more."""
        if not flow.shut:
            flow.shut, flow.first = True, not flow.fin
            self._engine.close(flow)
        if flow.lane is None:
            flow.discards = True
            self.discard(flow)

    def leave(self, flow: Flow) -> None:
        """The device has let go of one that has not ended: FIN follows."""
        flow.rejoin(self._engine.info(flow), self._mss)
        self.shutdown(flow)

    def give(self, flow: Flow, segment: Segment) -> bool:
        """Give the engine a segment that came before; whether it was given.

        Bytes of a stream that the device has may be released at any moment, and their places
        used again: a segment with bytes is dropped then, as if the wire had lost it.
        """
        if segment.data:
            if flow.lane is not None:
                return False
            place(flow, segment, self._engine.info(flow)["received"])
        self._engine.segment(flow, segment)
        return True
