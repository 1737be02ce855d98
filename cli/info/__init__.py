"""`stagecoach info`."""
