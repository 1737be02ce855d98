"""The memory server: what it tells its peers, and whole conversations."""
