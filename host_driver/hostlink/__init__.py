"""The driver's side of the host link (docs/hostlink.md)."""
