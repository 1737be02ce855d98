"""The host link: the device's ports over a line of bytes (docs/hostlink.md)."""
