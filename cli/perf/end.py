"""What both ends have: a control QP, the QPs that are measured, and a buffer for all messages."""

import itertools
import math
import mmap
import time
from collections import deque
from typing import Self

from stagecoach.cli.perf.settings import PerfError
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.cq import CQ
from stagecoach.host_driver.enums import AccessFlags, WCOpcode, WCStatus
from stagecoach.host_driver.mr import MR
from stagecoach.host_driver.pd import PD
from stagecoach.host_driver.qp import QP
from stagecoach.host_driver.qp_attr import QPCap, QPInitAttr
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.host_driver.wr import SGE, WC, RecvWR, SendWR
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.transport import SimulatedDevice

PATIENCE = 60.0
"""Seconds in which no cycle passes, after which the other end is given up."""

FOREVER = math.inf

_NOTES = 4
_NOTE_OCTETS = 8
_POLL_CYCLES = 8
_POLL_SECONDS = 100e-6
_SLICE = 0.1  # of waiting: Ctrl-C is heeded between two


class PeerClosed(PerfError):
    """The other end closed the connection, or it was lost."""


class End:
    """One end, not connected yet.

    Parameters
    ----------
    context: an open device. qps: those that are measured.
    octets: of the buffer. access: what the peer may do there.
    sends, receives: most that are outstanding on each of these QPs. rfc7306: as of `QPInitAttr`.

    Attributes
    ----------
    control: the QP for notes, numbers that the ends tell each other. qps: those measured.
    mr: the buffer, page-aligned.
    """

    def __init__(
        self,
        context: Context,
        *,
        qps: int,
        octets: int,
        access: AccessFlags = AccessFlags.LOCAL_WRITE,
        sends: int = 1,
        receives: int = 1,
        rfc7306: bool = False,
    ):
        self.context = context
        self._simulated: SimulatedDevice | None = None
        if isinstance(context.transport, SimulatedDevice):
            self._simulated = context.transport
        self._in_step = False
        self.pd = PD(context)
        try:
            self._control_cq = CQ(context, 2 * _NOTES)
            self._cq = CQ(context, qps * (sends + receives))
            self.control = self._qp(self._control_cq, _NOTES, _NOTES)
            self.qps = [self._qp(self._cq, sends, receives, rfc7306) for _ in range(qps)]
            self._buffer = mmap.mmap(-1, octets)
            self.mr = MR(self.pd, self._buffer, access | AccessFlags.LOCAL_WRITE)
            # The first slot is for what is sent, the others for what comes.
            self._slots = mmap.mmap(-1, _NOTE_OCTETS * (1 + _NOTES))
            self._slots_mr = MR(self.pd, self._slots)
            self._notes: deque[int] = deque()
            self._failed: list[WC] = []
            self._received = 0
            self.control.post_recv(*(self._receive(slot) for slot in range(1, 1 + _NOTES)))
        except BaseException:
            self.pd.close()
            raise

    def _qp(self, cq: CQ, sends: int, receives: int, rfc7306: bool = False) -> QP:
        return QP(self.pd, QPInitAttr(cq, cq, QPCap(sends, receives), rfc7306))

    def _slot(self, slot: int) -> SGE:
        mr = self._slots_mr
        return SGE(mr.addr + _NOTE_OCTETS * slot, _NOTE_OCTETS, mr.lkey)

    def _receive(self, slot: int) -> RecvWR:
        return RecvWR(slot, [self._slot(slot)])

    def run_in_step(self, stream: SocketStream) -> None:
        """From here on cycles pass at both ends alike, and only while both programs wait.

        Only of a simulated device.
        """
        assert self._simulated is not None
        self._simulated.run_in_step(stream)
        self._in_step = True

    @property
    def cycles(self) -> int:
        """Cycles of the device so far. A board is asked over its link, which takes some of them."""
        return self.context.cycles if self._simulated is None else self._simulated.cycles

    def send(self, note: int) -> None:
        """Sends a note and waits until it has left. Raises as `receive` does."""
        self._slots[:_NOTE_OCTETS] = note.to_bytes(_NOTE_OCTETS)
        self.control.post_send(SendWR(sg=[self._slot(0)]))
        sent = 0
        while not sent:
            sent = sum(not self._keep(found) for found in self._wait(self._control_cq))

    def receive(self, seconds: float | None = None) -> int:
        """The next note. Raises `PerfError` if the peer stands still, `PeerClosed`."""
        while not self._notes:
            for found in self._wait(self._control_cq, seconds):
                self._keep(found)
        return self._notes.popleft()

    def _keep(self, found: WC) -> bool:
        """Keeps the note that was received; False if one was sent instead."""
        if found.opcode != WCOpcode.RECV:
            return False
        start = _NOTE_OCTETS * found.wr_id
        self._notes.append(int.from_bytes(self._slots[start : start + _NOTE_OCTETS]))
        self.control.post_recv(self._receive(found.wr_id))
        return True

    def completions(self) -> list[WC]:
        """Waits for completions of the measured QPs, and returns all that are there.

        Raises `PerfError` if a request failed, or the peer stands still, `PeerClosed`.
        """
        return self._wait(self._cq)

    def take(self) -> list[WC]:
        """The completions of the measured QPs that are there, perhaps none. Raises as above."""
        return self._take(self._cq)

    def take_sent(self) -> None:
        """Takes completions of Sends and Writes that are there, for room in the queue."""
        self._received += self._receives_in(self.take())

    def await_receive(self) -> None:
        """Waits for the completion of the next receive of the measured QPs. Raises as above."""
        while not self._received:
            self._received += self._receives_in(self.completions())
        self._received -= 1

    def await_receives(self, messages: int) -> None:
        """Waits for so many completions of receives of the measured QPs. Raises as above."""
        while messages > 0:
            messages -= self._receives_in(self.completions())

    @staticmethod
    def _receives_in(found: list[WC]) -> int:
        return sum(each.opcode == WCOpcode.RECV for each in found)

    def poke(self, offset: int, value: int) -> None:
        """Sets a byte of the buffer."""
        self._buffer[offset] = value

    def await_octet(self, offset: int, value: int) -> None:
        """Polls a byte of the buffer until it has a value: of a simulated device every 8 cycles.

        Raises `PerfError` if it has not for `PATIENCE` seconds, `PeerClosed`.
        """
        end = time.monotonic() + PATIENCE
        while self._buffer[offset] != value:
            if self._simulated is None:
                time.sleep(_POLL_SECONDS)
            else:
                self._simulated.run_cycles(_POLL_CYCLES)
            # Its receives are flushed when the connection is lost.
            for found in self._take(self._control_cq):
                self._keep(found)
            self.take_sent()
            if time.monotonic() > end:
                raise PerfError(f"the peer has written nothing for {PATIENCE:g} s")

    def arm(self) -> None:
        """Has the next completion of the measured QPs raise the interrupt."""
        self._arm(self._cq)

    def await_interrupt(self, seconds: float | None = None) -> None:
        """Returns in the cycle of the interrupt.

        Raises `PerfError` if in step no cycle passes, or else nothing comes, for some seconds,
        `PATIENCE` if not given.
        """
        seconds = PATIENCE if seconds is None else seconds
        end, cycles = time.monotonic() + seconds, self._passed()
        # This takes no register access: how often it is done changes nothing.
        while not self.context.wait(_SLICE):
            if (passed := self._passed()) != cycles:
                end, cycles = time.monotonic() + seconds, passed
            elif time.monotonic() > end:
                if self._in_step:
                    raise PerfError(f"the peer has kept its device from running for {seconds:g} s")
                raise PerfError(f"nothing was completed for {seconds:g} s")

    def _passed(self) -> int:
        """In step the cycles, else always the same: they pass whatever the peer does."""
        return self.cycles if self._in_step else 0

    def _arm(self, cq: CQ) -> None:
        self.context.clear_interrupts()
        cq.req_notify()

    def _wait(self, cq: CQ, seconds: float | None = None) -> list[WC]:
        while True:
            self._arm(cq)
            if found := self._take(cq):
                return found
            self.await_interrupt(seconds)
            if found := self._take(cq):
                return found

    def _take(self, cq: CQ) -> list[WC]:
        """What is there and has not failed; the first failure is raised after it."""
        found = self._failed or cq.poll(cq.cqe)
        good = list(itertools.takewhile(lambda each: each.status == WCStatus.SUCCESS, found))
        self._failed = found[len(good) :]
        if self._failed and not good:
            raise self._failure(self._failed[0])
        return good

    def _failure(self, failed: WC) -> PerfError:
        if self.context.qps[failed.qp_num].cause == Cause.LLP_CLOSED:
            return PeerClosed((failed.stream_end or StreamEnd.CLOSED).words)
        return PerfError(failed.describe())

    def close(self) -> None:
        """Ends the connections and frees what the end has."""
        if self._simulated is not None:
            self._simulated.run_freely()
        self.pd.close()
        self._cq.close()
        self._control_cq.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
