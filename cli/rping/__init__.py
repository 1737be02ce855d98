"""`stagecoach rping`."""
