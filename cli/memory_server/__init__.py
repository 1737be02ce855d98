"""`stagecoach memory-server`."""
