"""The compiled device, its surroundings and the reference model."""

# In the root of the repository the folder is in reach under its own name: all classes twice.
if __name__ != "stagecoach.sim":
    raise ImportError("sim is imported as stagecoach.sim", name=__name__)
