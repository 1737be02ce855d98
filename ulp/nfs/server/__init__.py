"""The server: a directory of this machine, exported read-write."""
