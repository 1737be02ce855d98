"""The `stagecoach` command: one module or folder for each of its commands."""

# In the root of the repository the folder is in reach under its own name: all classes twice.
if __name__ != "stagecoach.cli":
    raise ImportError("cli is imported as stagecoach.cli", name=__name__)
