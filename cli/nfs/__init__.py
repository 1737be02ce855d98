"""`stagecoach nfs`."""
