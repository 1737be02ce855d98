"""What the device does when its surroundings do not do what they should."""
