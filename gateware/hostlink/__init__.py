"""The host link: the device's ports over a line of octets (docs/hostlink.md)."""
