"""The client's account of credits (RFC 5666, 3.3 and 3.8; RFC 8166, 3.3.1)."""

import asyncio
from collections import deque

from stagecoach.ulp.rpcrdma.settings import INITIAL_CREDITS


class CreditWindow:
    """How many calls may be outstanding: no more than requested, and than the server granted last.

    An RDMA_DONE takes a receive of the server and is not answered. It counts until the reply to a
    call that was sent after it: Sends arrive in order, so the server has taken it then.

    Parameters
    ----------
    requested: what each call asks for.

    Attributes
    ----------
    granted: by the last reply; 1 before (RFC 8166, 3.3.3). outstanding: calls without a reply.
    """

    def __init__(self, requested: int):
        self.requested = requested
        self.granted = INITIAL_CREDITS
        self.outstanding = 0
        self._sent = 0
        self._dones: deque[int] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._error: Exception | None = None

    @property
    def unacknowledged_dones(self) -> int:
        """RDMA_DONEs that the server may not have taken yet."""
        return len(self._dones)

    @property
    def may_send(self) -> bool:
        """Whether one more call may be sent.

        A server has at least one credit for a client without calls outstanding, whatever it said:
        else nothing would ever move again (RFC 5666, 3.3).
        """
        if not self.outstanding:
            return True
        used = self.outstanding + len(self._dones)
        return used < min(self.requested, self.granted)

    async def take(self) -> None:
        """Waits until one more call may be sent, after those who waited before, and counts it."""
        if self._error is not None:
            raise self._error
        if not self._waiting and self.may_send:
            self.outstanding += 1
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future in self._waiting:
                self._waiting.remove(future)
            elif not future.cancelled() and future.exception() is None:
                self.give()
            raise

    def give(self) -> None:
        """The reply has come, or nothing was sent."""
        self.outstanding -= 1
        self._serve()

    def grant(self, credits: int) -> None:
        """What a reply grants."""
        self.granted = credits
        self._serve()

    def request(self, credits: int) -> None:
        """What calls ask for from now on."""
        self.requested = credits
        self._serve()

    def sent_call(self) -> int:
        """A call is sent; the number is for `answered`."""
        self._sent += 1
        return self._sent

    def sent_done(self) -> None:
        """An RDMA_DONE is sent: it takes the credit of its call, which is given back then."""
        self._sent += 1
        self._dones.append(self._sent)

    def answered(self, number: int) -> None:
        """The reply to the call of this number has come."""
        while self._dones and self._dones[0] < number:
            self._dones.popleft()
        self._serve()

    def fail(self, error: Exception) -> None:
        """Has all who wait, and all who ask later, raise `error`."""
        self._error = error
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)

    def _serve(self) -> None:
        while self._waiting and self.may_send:
            future = self._waiting.popleft()
            if not future.done():
                self.outstanding += 1
                future.set_result(None)
