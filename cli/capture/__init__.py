"""`stagecoach capture`: the headers of the last frames of devices with a network of their own."""
