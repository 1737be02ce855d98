"""Draws all pictures, or the named ones: `python -m tools.figures [NAME ...]`."""

import argparse
import sys

from tools.figures.catalogue import FOLDER, PICTURES


def main() -> int:
    """Write the files."""
    parser = argparse.ArgumentParser(prog="make figures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    names = parser.parse_args().names or list(PICTURES)
    for name in names:
        if name not in PICTURES:
            parser.error(f"picture {name!r}; allowed: {', '.join(PICTURES)}")
        target = FOLDER / f"{name}.svg"
        target.write_text(PICTURES[name]())
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
