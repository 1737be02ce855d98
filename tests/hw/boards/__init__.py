"""Tests of the boards' own parts."""
