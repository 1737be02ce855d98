"""IPv4 (RFC 791): checksum and header."""
