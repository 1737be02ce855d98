"""Tests of the register description, the register block and the command processor."""
