"""Malformed traffic: valid streams of the reference model, mutated, sent to the whole device.

A case (`case.py`) is a function of a seed and its number: a setting of the device's end, messages
that are right for it (`traffic.py`), and what is done to them (`mutations.py`). `bench.py` runs
many at a time on QPs of one compiled device, `compare.py` finds what is not as
`sim.model.predict` says, `shrink.py` makes a failure small. A failure prints the smallest case as
Python, for a test like those of tests/sim/malformer/test_fixed_streams.py, and leaves a capture in
build/malformer.

`make soak` divides a large number of mutated FPDUs into chunks (`chunk.py`) and runs them with
pytest-xdist, or on the workers of a Dask scheduler, each of which needs this project installed and
one thread (`dask worker tcp://host:port --nthreads 1`).
"""
