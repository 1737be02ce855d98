"""What can go wrong with the machinery, and not with a case."""


class InteropError(Exception):
    """Nothing can be run; the message is one line, for the user."""
