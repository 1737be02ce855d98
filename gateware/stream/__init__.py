"""Slots, buffers and FIFOs of streams, a fork and a merge: nothing here knows a protocol."""
