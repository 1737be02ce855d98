"""`stagecoach cache`."""
