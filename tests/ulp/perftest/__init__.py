"""perftest: its messages, whole tests, and peers that do not keep to them."""
