"""What each open device publishes of itself, for `stagecoach top`."""
