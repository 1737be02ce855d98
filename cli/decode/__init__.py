"""`stagecoach decode`."""
