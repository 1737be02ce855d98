"""Stagecoach: an open iWARP RNIC, its simulation, and its host driver with the names of pyverbs.

What programs use stands here. The device itself (`Rnic`, `RnicConfig`) and its simulation
(`SimulatedDevice`) need the extra `sim`; they are imported when they are first used.
"""
