"""Tests of what stands around a device in cocotb tests."""
