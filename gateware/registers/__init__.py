"""Host registers and the commands that they start."""
