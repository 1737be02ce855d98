"""What the server's end of a connection answers with."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from stagecoach.ulp.oncrpc.budget import Budget
from stagecoach.ulp.oncrpc.errors import RpcConnectionError
from stagecoach.ulp.oncrpc.limits import Account
from stagecoach.ulp.rpcrdma.channel import Channel
from stagecoach.ulp.rpcrdma.errors import ErrorCode
from stagecoach.ulp.rpcrdma.fatal_calls import Suspects
from stagecoach.ulp.rpcrdma.header import VERSION, Fault, Header, Procedure
from stagecoach.ulp.rpcrdma.settings import ServerSettings
from stagecoach.ulp.rpcrdma.terms import Terms


class Responder:
    """Answers to calls: credits, memory that the client still reads, RDMA_ERROR, time limits.

    Attributes
    ----------
    settings, suspects, account: those of the server's end. channel: the connection.
    terms: what the client told. credits: granted in each reply, 1 to `settings.credits`.
    open_calls: that are not answered. refused: that were answered with RDMA_ERROR.
    dones: by XID, replies whose read chunks the client has; `done_budget` limits them.
    """

    channel: Channel

    def __init__(self, settings: ServerSettings, suspects: Suspects, account: Account):
        self.settings, self.suspects, self.account = settings, suspects, account
        self.terms = Terms()
        self.open_calls = 0
        self.refused = 0
        self._credits = settings.credits
        # An RDMA_DONE takes a receive beside those of the credits (RFC 5666, 3.8).
        self.done_limit = max(1, settings.credits - 1) if settings.is_rfc5666 else 0
        self.done_budget = Budget(self.done_limit)
        self.dones: dict[int, list[asyncio.Event]] = {}

    @property
    def credits(self) -> int:
        """What is granted, without those that outstanding RDMA_DONEs take; never 0."""
        return self._credits

    @credits.setter
    def credits(self, value: int) -> None:
        if not 1 <= value <= self.settings.credits:
            raise ValueError(f"credits are {value}; allowed: 1 to {self.settings.credits}")
        self._credits = value

    @property
    def grant(self) -> int:
        """What the next reply grants: less by the RDMA_DONEs to come, never 0 (RFC 5666, 11)."""
        return max(1, self._credits - sum(map(len, self.dones.values())))

    @contextmanager
    def answering(self, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Ends the connection if what is inside fails: the answer is lost (RFC 8166, 4.5.4).

        The client is to know. And where an answer was cut off, the device may still send from its
        memory: nobody gets that any more. Errors of the types `but` are answered in another way.
        """
        try:
            yield
        except BaseException as error:
            if not isinstance(error, (RpcConnectionError, *but)):
                self.channel.lost(f"an answer is lost: {type(error).__name__}: {error}")
            raise

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """The client must let what is inside be done in some time, or loses the connection.

        Raises `RpcConnectionError`.
        """
        seconds = self.account.limits.reply_seconds
        try:
            async with asyncio.timeout(seconds) as timer:
                yield
        except TimeoutError:
            if not timer.expired():
                raise
            self.channel.lost(f"the client has left what this end sends for {seconds} s")
            self.channel.require_open()

    async def send_error(self, slot: int, xid: int, version: int | None, code: ErrorCode) -> None:
        """Answers with RDMA_ERROR; the receive of the call is posted again before."""
        self.refused += 1
        fault = Fault(code, VERSION, VERSION) if code is ErrorCode.ERR_VERS else Fault(code)
        header = Header(
            xid,
            self.grant,
            Procedure.RDMA_ERROR,
            fault=fault,
            version=VERSION if version is None else version,
        )
        with suppress(RpcConnectionError), self.answering():  # or the client is gone
            self.channel.give_back(slot)
            async with self.in_time():
                await self.channel.send(header.encode())
