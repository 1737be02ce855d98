"""Slots, buffers and FIFOs of streams, and a fork: nothing here knows a protocol."""
