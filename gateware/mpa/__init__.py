"""MPA: framing of ULPDUs on the LLP stream (RFC 5044)."""
