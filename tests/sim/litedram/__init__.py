"""Tests of sim/litedram."""
