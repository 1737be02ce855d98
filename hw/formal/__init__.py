"""Formal proofs of gateware: `make formal`."""
