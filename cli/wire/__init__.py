"""`stagecoach wire`: sets a TAP up, or checks any other simulated wire."""
