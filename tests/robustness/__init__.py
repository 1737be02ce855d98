"""What the device does when its surroundings do not do what they should."""

FAST = False  # runs whole devices
