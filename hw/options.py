"""Values of options of the commands for developers."""

import argparse


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"invalid number {text!r} (expected 1 or more)")
    return int(text)
