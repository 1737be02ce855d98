"""Ethernet frames (RFC 894): into the store, counted, and out."""
