"""The RNIC in Amaranth: one folder per protocol layer or function, joined by `rnic.py`."""
