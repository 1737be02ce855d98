"""Directory trees for copies, and what is compared of them."""

import os
import random
import stat
from pathlib import Path


def make_tree(directory: Path, sizes: list[int], seed: int) -> None:
    """Files of these sizes in nested directories, with modes and times; a few links."""
    source = random.Random(seed)
    directories = [directory]
    directory.mkdir(parents=True, exist_ok=True)
    for number, size in enumerate(sizes):
        if number % 12 == 5:
            directories.append(source.choice(directories) / f"directory {number}")
            directories[-1].mkdir()
        path = source.choice(directories) / f"file-{number}-ü"
        path.write_bytes(source.randbytes(size))
        path.chmod(source.choice([0o644, 0o600, 0o755]))
        os.utime(path, ns=(10**18 + number, 10**18 + 1000 * number))
        if number % 20 == 3:
            (path.parent / f"link-{number}").symlink_to(path.name)
    (directories[-1] / "dangling").symlink_to("../../nowhere")


def facts_of(directory: Path) -> dict[str, tuple]:
    """Of every file: its kind and permissions, and content, target, and time."""
    facts = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        name = str(path.relative_to(directory))
        if path.is_symlink():
            facts[name] = ("link", os.readlink(path))
        elif path.is_dir():
            facts[name] = ("directory", stat.S_IMODE(status.st_mode))
        else:
            mode = stat.S_IMODE(status.st_mode)
            facts[name] = ("file", mode, status.st_mtime_ns, path.read_bytes())
    return facts
