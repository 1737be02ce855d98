"""Slots, buffers and FIFOs of streams."""
