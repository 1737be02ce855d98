"""What tshark's dissectors of RPC-over-RDMA, RPC, MOUNT and NFS say of a capture."""

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

_TIMEOUT = 120


def _tshark(path: Path, *options: str) -> str:
    program = shutil.which("tshark")
    assert program, "tshark is not installed (Debian package tshark); this test needs it"
    command = [program, "-n", "-r", str(path), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT)
    return result.stdout


@dataclass(frozen=True)
class Dissected:
    """Of each packet with an RPC-over-RDMA header: fields by name, as tshark shows them."""

    packet: int
    protocols: list[str] = field(default_factory=list)
    fields: dict[str, list[str]] = field(default_factory=dict)

    def first(self, name: str) -> str | None:
        """The first field of a name."""
        return self.fields.get(name, [None])[0]


def dissected(path: Path) -> list[Dissected]:
    """All packets with RPC-over-RDMA headers."""
    found = []
    for packet in ElementTree.fromstring(_tshark(path, "-T", "pdml")).iter("packet"):
        number = int(packet.find("proto[@name='geninfo']/field[@name='num']").get("show"))
        protocols = [proto.get("name") for proto in packet.iter("proto")]
        if "rpcordma" not in protocols:
            continue
        found.append(Dissected(number, protocols))
        for proto in packet.iter("proto"):
            if proto.get("name") in ("rpcordma", "rpc", "nfs", "mount"):
                for each in proto.iter("field"):
                    found[-1].fields.setdefault(each.get("name"), []).append(each.get("show"))
    return found
