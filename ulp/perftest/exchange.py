"""The exchange of the two ends, over a QP of its own: the client's message, then the server's."""

from dataclasses import dataclass

from stagecoach.ulp.perftest.errors import PerftestError
from stagecoach.ulp.perftest.link import Link
from stagecoach.ulp.perftest.messages import (
    DESTINATION_OCTETS,
    LINE_OCTETS,
    MTU,
    PAGE_OCTETS,
    REPORT_NAMES,
    Destination,
    Report,
    check_mtu,
    check_version,
    pack_mtu,
    pack_number,
    pack_version,
    unpack_line,
    unpack_page,
)


@dataclass(frozen=True)
class Agreed:
    """What both ends use: of each the larger one. Bytes of `Places`."""

    page: int
    line: int


class Exchange:
    """One end of it.

    Parameters
    ----------
    link: with the QP of the exchange connected. client: whether this end speaks first.
    """

    def __init__(self, link: Link, client: bool):
        self._link = link
        self._client = client

    def swap(self, octets: bytes, what: str) -> bytes:
        """Sends a message, and returns that of the peer, which has the same length.

        what: the peer's message is. Raises as `Link.receive`.
        """
        what = f"the peer's {what}"
        if self._client:
            if self._link.peer_went_on:
                raise PerftestError(f"{what} came before that of this end; allowed: after it")
            self._link.send(octets)
            return self._link.receive(len(octets), what)
        found = self._link.receive(len(octets), what)
        self._link.send(octets)
        return found

    def begin(self) -> Agreed:
        """Version, memory and MTU. Raises `WrongPerftestVersion` before the second message."""
        check_version(self.swap(pack_version(), "version"))
        page = unpack_page(self.swap(pack_number(PAGE_OCTETS), "page size"))
        line = unpack_line(self.swap(pack_number(LINE_OCTETS), "cache line size"))
        check_mtu(self.swap(pack_mtu(MTU), "MTU"))
        return Agreed(max(page, PAGE_OCTETS), max(line, LINE_OCTETS))

    def shake(self, mine: Destination, what: str = "handshake") -> Destination:
        """Tells where this end's memory is; returns where that of the peer is."""
        octets = mine.pack()
        assert len(octets) == DESTINATION_OCTETS
        return Destination.unpack(self.swap(octets, what))

    def report(self, mine: Report) -> Report:
        """Exchanges the results."""
        return Report.unpack(
            [
                self.swap(octets, f"report ({name})")
                for octets, name in zip(mine.pack(), REPORT_NAMES, strict=True)
            ]
        )
