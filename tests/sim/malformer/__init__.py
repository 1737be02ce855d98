"""Malformed traffic against the whole device."""
