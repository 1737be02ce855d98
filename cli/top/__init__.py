"""`stagecoach top`: what the devices of running programs do, from the counters that they keep."""
