"""DDP: segment headers and the checks of a segment (RFC 5041)."""
