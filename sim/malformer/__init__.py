"""Malformed traffic: valid streams of the reference model, mutated, sent to the whole device.

A case is a pure function of a seed, its number and the lane that runs it. The device has to do
with it exactly what `sim.model.predict` says.
"""
