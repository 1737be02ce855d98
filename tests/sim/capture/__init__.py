"""Tests of captures: packets, TCP streams, MPA connections, decoding."""
