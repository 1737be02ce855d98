"""`stagecoach perftest`."""
