"""The detail placer."""
