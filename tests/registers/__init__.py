"""Tests of the register block and the command processor."""
