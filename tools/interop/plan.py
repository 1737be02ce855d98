"""The cases that are planned, all of them named before one runs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.interop import nfs
from tools.interop.lab import GATEWARE, OWN, SOCKETS, Lab, Way
from tools.interop.messages import Messages, RefusedUcmatose, Ucmatose
from tools.interop.perftest import TOOLS, Perftest, RefusedWriteLat
from tools.interop.rping import Rping, TwoGuests

LOSS = 0.001
"""Of all frames, both ways, where some are lost."""

_SIZES = (26, 4000, 65535)
"""The smallest and the largest that rping takes, and one that is no multiple of a segment."""

_SERVES = {False: "Linux is the client", True: "Linux is the server"}


@dataclass(frozen=True)
class Case:
    """Something that is done with Linux.

    subject: of the command. name: what is done. way: over what. do: raises `JobError` if it fails.
    long: only of the full matrix. check: of what the wire showed, raises as `do`.
    """

    subject: str
    name: str
    way: Way
    do: Callable[[Lab], None]
    long: bool = False
    check: Callable[[Path], None] = lambda capture: None

    @property
    def label(self) -> str:
        """The case in one line, different for each."""
        loss = f", {self.way.loss:.1%} loss" if self.way.loss else ""
        return f"{self.subject}: {self.name} ({self.way.transport}{loss})"


def plan(*, full: bool) -> list[Case]:
    """The cases: those that are always run, or the full matrix."""
    everything = [*_rping(), *_messages(), *_ucmatose(), *_perftest(), *_nfs()]
    everything += _gateware(everything)
    return [case for case in everything if full or not case.long]


def _rping() -> Iterator[Case]:
    for serves, who in _SERVES.items():
        for size in _SIZES:
            for crc in (True, False):
                options = () if crc else ("--no-crc",)
                name = f"{who}, {size:,} bytes, CRC {'on' if crc else 'off'}"
                do = Rping(serves, size, options=options)
                yield _pings(name, Way(SOCKETS), do)
                yield _pings(name, Way(OWN), do, long=not crc)
                yield _pings(name, Way(OWN, LOSS), do, long=size != 65535 or not crc)
        for way in (Way(SOCKETS), Way(OWN)):
            for name, do in _startup(serves):
                yield _pings(f"{who}, {name}", way, do)
    for serves, who in _SERVES.items():
        four = Rping(serves, 4000, clients=4)
        for way in (Way(SOCKETS), Way(OWN), Way(OWN, LOSS)):
            yield _pings(f"{who}, four clients at once", way, four, long=serves and way.loss > 0)
    two = TwoGuests(4000)
    for way in (Way(SOCKETS), Way(OWN), Way(OWN, LOSS)):
        name = f"{_SERVES[False]}, two guests at once, two each"
        yield Case("rping", name, way, two, long=way != Way(OWN))


def _pings(name: str, way: Way, do: Rping, long: bool = False) -> Case:
    return Case("rping", name, way, do, long, do.check)


def _startup(serves: bool) -> Iterator[tuple[str, Rping]]:
    """What else MPA startup has. With revision 1 a server on siw cannot read, not even from siw."""
    if serves:
        yield "peer-to-peer", Rping(serves, 4000, options=("--peer-to-peer",))
        return
    yield "peer-to-peer", Rping(serves, 4000, siw={"peer_to_peer": 1})
    yield "MPA revision 1", Rping(serves, 4000, siw={"mpa_version": 1})
    required = {"mpa_crc_required": 1}
    yield "CRC asked for by Linux alone", Rping(serves, 4000, options=("--no-crc",), siw=required)


def _messages() -> Iterator[Case]:
    for serves, program in ((False, "rdma_client"), (True, "rdma_server")):
        for revision in (1, 2):
            do = Messages(serves, revision)
            for way in (Way(SOCKETS), Way(OWN)):
                long = way.transport == OWN and revision == 1
                yield Case(program, f"a Send each way, MPA revision {revision}", way, do, long)


def _ucmatose() -> Iterator[Case]:
    for serves, who in _SERVES.items():
        do = Ucmatose(serves)
        count = f"{do.connections} connections, {do.messages} Sends each way"
        for way in (Way(SOCKETS), Way(OWN), Way(OWN, LOSS)):
            name = f"{who}, {count}, peer-to-peer"
            yield Case("ucmatose", name, way, do, way.loss > 0, do.check)
    refused = f"{_SERVES[False]}, refused without peer-to-peer"
    yield Case("ucmatose", refused, Way(SOCKETS), RefusedUcmatose())


def _perftest() -> Iterator[Case]:
    for serves, who in _SERVES.items():
        for tool in TOOLS:
            # The server of this one sends first, so its client has to send an RTR frame.
            rtr = tool == "ib_write_lat" and not serves
            do = Perftest(serves, tool, {"peer_to_peer": 1} if rtr else {})
            name = f"{tool}, {who}{', peer-to-peer' if rtr else ''}"
            yield Case("perftest", name, Way(SOCKETS), do)
            core = tool in ("ib_write_bw", "ib_read_bw")
            yield Case("perftest", name, Way(OWN), do, long=not core)
            yield Case("perftest", name, Way(OWN, LOSS), do, long=not core)
    refused = f"ib_write_lat, {_SERVES[False]}, refused without peer-to-peer"
    yield Case("perftest", refused, Way(SOCKETS), RefusedWriteLat())


_NFS = {
    "data compared": nfs.FILES,
    "names and links": nfs.NAMES,
    "500 entries": nfs.ENTRIES,
    "O_DIRECT": nfs.DIRECT,
    "sizes, times and modes": nfs.ATTRIBUTES,
    "parallel copies": nfs.PARALLEL,
}


def _nfs() -> Iterator[Case]:
    who = _SERVES[False]
    for name, commands in _NFS.items():
        do = nfs.Operations(commands)
        counted = f"{who}, {name}: {len(commands)} operations"
        yield Case("nfs", counted, Way(SOCKETS), do)
        own = name in ("data compared", "names and links")
        yield Case("nfs", counted, Way(OWN), do, long=not own)
        yield Case("nfs", counted, Way(OWN, LOSS), do, long=name != "data compared")
    for way in (Way(SOCKETS), Way(OWN)):
        long = way.transport == OWN
        yield Case("nfs", f"{who}, guest reset in the middle", way, nfs.GuestReset(), long)
        yield Case("nfs", f"{who}, server restart in the middle", way, nfs.ServerRestart(), long)
    copied = f"{_SERVES[True]}, a folder copied there and back, and removed"
    yield Case("nfs", copied, Way(SOCKETS), nfs.KernelServer())


_SHORT_IN_GATEWARE = ("4,000 bytes, CRC on", "names and links")


def _gateware(cases: Sequence[Case]) -> list[Case]:
    """What is always run over the device's TCP, over the engine in gateware: some of it always."""
    return [
        replace(
            case,
            way=replace(case.way, transport=GATEWARE),
            long=not any(text in case.name for text in _SHORT_IN_GATEWARE),
        )
        for case in cases
        if case.way.transport == OWN and not case.long
    ]


def selected(cases: Iterable[Case], text: str) -> list[Case]:
    """Those with a text in their label."""
    return [case for case in cases if text in case.label]
