"""What tshark's dissectors of RPC-over-RDMA, RPC, MOUNT and NFS say of a capture."""

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

_TIMEOUT = 120
_TOLD = {"rpcordma", "rpc", "_ws.malformed"}


def _tshark(path: Path, *options: str) -> str:
    program = shutil.which("tshark")
    assert program, "tshark is not installed (Debian package tshark); this test needs it"
    command = [program, "-n", "-r", str(path), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT)
    return result.stdout


@dataclass(frozen=True)
class Dissected:
    """A packet: its protocols, and its fields by name, as tshark shows them."""

    packet: int
    protocols: list[str] = field(default_factory=list)
    fields: dict[str, list[str]] = field(default_factory=dict)

    def first(self, name: str) -> str | None:
        """The first field of a name."""
        return self.fields.get(name, [None])[0]


def dissected(path: Path) -> list[Dissected]:
    """All packets with a header or a message of RPC, and those that tshark calls malformed.

    Two passes: in one tshark also dissects what is left of a READ reply without its data.
    """
    found = []
    for packet in ElementTree.fromstring(_tshark(path, "-2", "-T", "pdml")).iter("packet"):
        number = int(packet.find("proto[@name='geninfo']/field[@name='num']").get("show"))
        protocols = [proto.get("name") for proto in packet.iter("proto")]
        if not _TOLD.intersection(protocols):
            continue
        found.append(Dissected(number, protocols))
        for proto in packet.iter("proto"):
            if proto.get("name") in ("rpcordma", "rpc", "nfs", "mount"):
                for each in proto.iter("field"):
                    found[-1].fields.setdefault(each.get("name"), []).append(each.get("show"))
    return found
