"""`stagecoach memory`."""
