"""What one Context may have at a time: the fair share that RFC 5040, 8.1.2 asks for."""

from collections import Counter
from dataclasses import dataclass, fields

from stagecoach.host_driver.errors import QuotaExceeded


@dataclass(frozen=True, kw_only=True)
class Quota:
    """The most that may be open at a time; `None` for what the device has.

    Attributes
    ----------
    qps, cqs, srqs, mrs: Queue Pairs, Completion Queues, Shared Receive Queues and memory regions.
    cq_entries: sum of `CQ.cqe`.
    octets: sum of the lengths of the memory regions.

    Raises `ValueError` for a negative value, `TypeError` for anything other than an integer.

    >>> with Context(device, quota=Quota(mrs=1)) as context:
    ...     pd = PD(context)
    ...     first = MR(pd, 64)
    ...     second = MR(pd, 64)
    Traceback (most recent call last):
        ...
    stagecoach.host_driver.errors.QuotaExceeded: quota mrs of the Context is 1: 1 in use, 1 more
    asked for; allowed: up to 0 more
    """

    qps: int | None = None
    cqs: int | None = None
    srqs: int | None = None
    mrs: int | None = None
    cq_entries: int | None = None
    octets: int | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None:
                continue
            if not isinstance(value, int):
                raise TypeError(f"quota {each.name} is {value!r}; allowed: an integer or None")
            if value < 0:
                raise ValueError(f"quota {each.name} is {value}; allowed: 0 or more, or None")


class Usage:
    """Counts what is open against a `Quota`."""

    def __init__(self, quota: Quota):
        self._quota = quota
        self._taken: Counter[str] = Counter()

    def take(self, **demands: int) -> None:
        """Counts what is demanded; `QuotaExceeded`, and nothing is counted, if it is too much."""
        self.require(**demands)
        self._taken.update(demands)

    def require(self, **demands: int) -> None:
        """Raises `QuotaExceeded` if `take` would."""
        for name, demand in demands.items():
            limit = getattr(self._quota, name)
            if limit is not None and self._taken[name] + demand > limit:
                raise QuotaExceeded(name, limit, self._taken[name], demand)

    def give(self, **demands: int) -> None:
        """Takes back a `take`."""
        self._taken.subtract(demands)

    def limit(self, name: str, most: int) -> int:
        """What may be open: the quota of that name, or `most` if that is less or there is none."""
        limit = getattr(self._quota, name)
        return most if limit is None else min(limit, most)

    def __getitem__(self, name: str) -> int:
        """What is open now, by the name of its quota."""
        return self._taken[name]
