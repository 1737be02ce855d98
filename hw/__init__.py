"""Hardware description shared by gateware and driver, boards, and the synthesis flow."""

# In the root of the repository the folder is in reach under its own name: all classes twice.
if __name__ != "stagecoach.hw":
    raise ImportError("hw is imported as stagecoach.hw", name=__name__)
