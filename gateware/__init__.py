"""The RNIC in Amaranth: one folder per protocol layer or function, joined by `rnic.py`."""

# In the root of the repository the folder is in reach under its own name: all classes twice.
if __name__ != "stagecoach.gateware":
    raise ImportError("gateware is imported as stagecoach.gateware", name=__name__)
