"""`make interop` without a guest."""
