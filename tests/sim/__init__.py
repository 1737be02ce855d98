"""Tests of the compiled device's surroundings, on a stub instead of the device."""
