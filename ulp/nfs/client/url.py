"""Where a file is: nfs+rdma://host:20049/export/path, or nfs+tcp:// without a device."""

from dataclasses import dataclass
from urllib.parse import unquote_to_bytes, urlsplit

RDMA = "nfs+rdma"
TCP = "nfs+tcp"
DEFAULT_PORTS = {RDMA: 20049, TCP: 2049}
"""RFC 5666, 12, and RFC 1813, 2.1."""


@dataclass(frozen=True)
class NfsUrl:
    """A file or directory of a server.

    scheme: `RDMA` or `TCP`. path: absolute, of bytes, of export and file together.
    """

    scheme: str
    host: str
    port: int
    path: bytes

    @classmethod
    def parse(cls, text: str) -> "NfsUrl":
        """Raises `ValueError`, which says what is allowed."""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"invalid URL {text!r}: {error}") from error
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
            raise ValueError(f"{text!r}; allowed: {RDMA}://host:port/path, {TCP}://host:port/path")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError(
                f"{text!r} has more than host, port and path; write ? and # as %3F, %23"
            )
        path = unquote_to_bytes(parts.path)
        names = [name for name in path.split(b"/") if name not in (b"", b".")]
        if b".." in names or b"\0" in path or "%2f" in parts.path.lower():
            raise ValueError(
                f"{text!r}: .., %2F or %00 in the path; allowed: names below each other"
            )
        if port is None:
            port = DEFAULT_PORTS[parts.scheme]
        return cls(parts.scheme, parts.hostname, port, b"/" + b"/".join(names))
