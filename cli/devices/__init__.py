"""`stagecoach devices`."""
