"""Soaks the TCP engine in gateware: `make soak-tcp`.

Two compiled NICs stand on a wire that loses, duplicates, reorders, corrupts and delays frames, and
exchange bytes on all their connections, in simulated time. `traffic` is what is exchanged and
compared, `frames` counts what passed, `chunk` is a run of one pair of NICs, `report` what came out,
`__main__` the command.
"""
