"""Memory of a server that one call uses."""

from stagecoach.ulp.oncrpc.limits import Account
from stagecoach.ulp.rpcrdma.pool import Pool, Region, region_octets


class Holding:
    """Counts what a call takes of the memory of its connection, and gives it all back at its end.

    Attributes
    ----------
    regions: registered memory that the call uses.
    """

    def __init__(self, pool: Pool, account: Account):
        self._pool, self._account = pool, account
        self._calls = self._replies = 0
        self.regions: list[Region] = []

    async def take(self, *octets: int) -> None:
        """Waits for memory for read chunks of the call."""
        self._calls += await self._account.calls.take(sum(map(region_octets, octets)))

    async def reserve(self, octets: int) -> None:
        """Waits for memory for the reply."""
        self._replies += await self._account.replies.take(region_octets(octets))

    def region(self, octets: int) -> Region:
        """Registered memory. Raises `ResourceError`."""
        region = self._pool.take(octets)
        self.regions.append(region)
        return region

    def give(self) -> None:
        """Gives all back. Repeatable."""
        while self.regions:
            self._pool.give(self.regions.pop())
        self._account.calls.give(self._calls)
        self._account.replies.give(self._replies)
        self._calls = self._replies = 0
