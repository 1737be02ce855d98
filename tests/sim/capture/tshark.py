"""Runs tshark over a capture and gives its verdicts."""

import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

# The dissector prints one of these per FPDU when the startup settled on CRC.
_GOOD_CRC = re.compile(r"\[Good CRC32\]|Good CRC32")
_BAD_CRC = re.compile(r"Bad CRC32")
_OPCODE = re.compile(r"OpCode: (.+) \(0x")
_BAD_CHECKSUM = re.compile(r"\[incorrect|\[Checksum Status: Bad|Bad checksum")
_SEQUENCE_TROUBLE = re.compile(r"TCP (?:Out-Of-Order|Previous segment|ACKed|.*Retransmission)")


@dataclass(frozen=True)
class Verdict:
    """What tshark found in a capture."""

    packets: int
    malformed: int
    good_crc: int
    bad_crc: int
    bad_checksums: int
    sequence_trouble: int
    requests: int
    replies: int
    opcodes: Counter


def verdict(path: Path) -> Verdict:
    """Decode the whole file with checksum verification. Fails when tshark is not installed.

    The RPC-over-RDMA dissector is off: it takes any Send for its own and calls those of fewer than
    16 octets malformed.
    """
    text = _run(
        path,
        *("-V", "--disable-protocol", "rpcordma"),
        *("-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"),
    )
    return Verdict(
        packets=len(re.findall(r"^Frame \d+:", text, re.MULTILINE)),
        malformed=text.count("Malformed Packet"),
        good_crc=len(_GOOD_CRC.findall(text)),
        bad_crc=len(_BAD_CRC.findall(text)),
        bad_checksums=len(_BAD_CHECKSUM.findall(text)),
        sequence_trouble=len(_SEQUENCE_TROUBLE.findall(text)),
        requests=text.count("ID Req frame: "),
        replies=text.count("ID Rep frame: "),
        opcodes=Counter(_OPCODE.findall(text)),
    )


def tcp_fields(path: Path) -> list[tuple[int, int, int, int, int]]:
    """Source port, sequence number, acknowledgment number, payload length, flags of segments."""
    names = ("tcp.srcport", "tcp.seq_raw", "tcp.ack_raw", "tcp.len", "tcp.flags")
    rows = [row for row in fields(path, *names) if len(row) == len(names)]
    return [tuple(int(value, 0) for value in row) for row in rows]


def fields(path: Path, *names: str) -> list[list[str]]:
    """Fields of each packet, as tshark shows them."""
    options = [option for name in names for option in ("-e", name)]
    rows = _run(path, "-T", "fields", *options).splitlines()
    return [row.split() for row in rows]


@dataclass(frozen=True)
class Dissection:
    """A startup frame or an FPDU as tshark shows it: values and texts of its fields by name."""

    packet: int
    fields: dict[str, list[str]]
    names: dict[str, str]

    def all(self, name: str) -> list[str]:
        """All fields of a name."""
        return self.fields.get(name, [])

    def number(self, name: str) -> int | None:
        """The first field of a name as a number, ``None`` if there is none."""
        texts = self.all(name)
        return int(texts[0], 0) if texts else None

    def octets(self, name: str) -> bytes | None:
        """The first field of a name, which is shown as octets."""
        texts = self.all(name)
        return bytes.fromhex(texts[0].replace(":", "")) if texts else None


def dissections(path: Path) -> list[Dissection]:
    """All frames of MPA, with the DDP and RDMAP headers in them."""
    # Port 20049 and its like must not call another dissector.
    text = _run(path, "-T", "pdml", "--disable-protocol", "rpcordma")
    found = []
    for packet in ElementTree.fromstring(text).iter("packet"):
        number = 0
        for proto in packet.iter("proto"):
            if proto.get("name") == "geninfo":
                number = int(proto.find("field[@name='num']").get("show"))
            elif proto.get("name") == "iwarp_mpa":
                found.append(Dissection(number, {}, {}))
            if proto.get("name") in ("iwarp_mpa", "iwarp_ddp_rdmap"):
                for field in proto.iter("field"):
                    name = field.get("name")
                    found[-1].fields.setdefault(name, []).append(field.get("show"))
                    found[-1].names.setdefault(name, field.get("showname"))
    return found


def _run(path: Path, *options: str) -> str:
    program = shutil.which("tshark")
    assert program, "tshark is not installed (Debian package tshark); this test needs it"
    command = [program, "-n", "-r", str(path), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return result.stdout


def lines(path: Path, *options: str) -> list[str]:
    """What tshark prints with options of the caller's."""
    return _run(path, *options).splitlines()
