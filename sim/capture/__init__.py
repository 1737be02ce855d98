"""Capture files: packets, TCP streams, MPA connections, what is in them."""
