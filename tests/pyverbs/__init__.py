"""`stagecoach.pyverbs`: signatures, objects, connections."""
