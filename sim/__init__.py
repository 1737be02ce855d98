"""The compiled device, its surroundings and the reference model."""
