"""Finds what a site would load from other hosts: `python -m tools.site.offline build/site`.

Links that a reader follows are no such thing.
"""

import argparse
import re
import sys
from pathlib import Path

_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|embed|video|audio)\b[^>]*?\bsrc\s*=\s*["']((?:https?:)?//[^"']*)"""
    r"""|<link\b(?![^>]*rel=["'](?:canonical|license)["'])[^>]*?\bhref\s*=\s*["']((?:https?:)?//[^"']*)"""
    r"""|url\(\s*["']?((?:https?:)?//[^"')]*)|@import\s+["']((?:https?:)?//[^"']*)""",
    re.IGNORECASE,
)


def outside(text: str) -> list[str]:
    """The addresses that a page or a style sheet loads from other hosts."""
    return [next(filter(None, found)) for found in _LOADED.findall(text)]


def main() -> int:
    """Return 1, and name the files, if there is something."""
    parser = argparse.ArgumentParser(prog="python -m tools.site.offline", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    failed = False
    for file in sorted([*folder.rglob("*.html"), *folder.rglob("*.css")]):
        for address in outside(file.read_text()):
            print(f"{file} loads {address}; allowed: what is in the site", file=sys.stderr)
            failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
