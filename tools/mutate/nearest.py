"""Which tests look at a file of the gateware, the nearest first."""

import ast
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("gateware", "hw", "sim", "host_driver", "tests", "examples")
"""Where imports are followed."""

DEVICES = ("gateware/rnic.py", "gateware/hostlink/serial_rnic.py")
"""Through these a test looks at a whole device."""

WHOLE_DEVICE = ("tests/integration", "tests/robustness", "tests/sim/malformer")
"""Folders of tests that use a whole device, in the order in which they are run."""

NO_BLOCKS = ("tests/hw", "tests/bench", "tests/host_driver", "tests/tools")
"""Folders of tests that look at figures of a design, or that need no gateware."""


@dataclass(frozen=True)
class Nearest:
    """Test files from the root of the project, in the order in which they are to be run.

    mirrored: those with the name of the file, in the folder that mirrors its folder. users: those
    of blocks that use it. whole: those of whole devices.
    """

    mirrored: tuple[str, ...]
    users: tuple[str, ...]
    whole: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return self.mirrored + self.users + self.whole


def imports(root: Path) -> dict[str, set[str]]:
    """The files that each Python file of the project imports, anywhere in it."""
    files = {
        str(path.relative_to(root))
        for folder in FOLDERS
        for path in (root / folder).rglob("*.py")
        if "build" not in path.relative_to(root).parts
    }
    return {file: set(_imported(root / file, files)) - {file} for file in files}


def _imported(path: Path, files: set[str]) -> Iterable[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            module = name.removeprefix("stagecoach.").replace(".", "/")
            for file in (f"{module}.py", f"{module}/__init__.py"):
                if file in files:
                    yield file


def _distances(users: Mapping[str, set[str]], start: str, ends: Iterable[str]) -> dict[str, int]:
    """How many imports are between `start` and what uses it, not looking past `ends`."""
    found = {start: 0}
    queue = deque([start])
    while queue:
        file = queue.popleft()
        if file in ends and file != start:
            continue
        for user in users.get(file, ()):
            if user not in found:
                found[user] = found[file] + 1
                queue.append(user)
    return found


def _is_test(file: str) -> bool:
    return file.startswith("tests/") and Path(file).name.startswith("test_")


def slow_tests(root: Path) -> frozenset[str]:
    """Test files with a test that is marked as slow."""
    paths = (root / "tests").rglob("test_*.py")
    return frozenset(
        str(path.relative_to(root)) for path in paths if "pytest.mark.slow" in path.read_text()
    )


def nearest(
    graph: Mapping[str, set[str]], file: str, slow: frozenset[str] = frozenset()
) -> Nearest:
    """The tests for a file of the gateware; `graph` is what `imports` returned.

    Those of whole devices that are `slow` come last.
    """
    users: dict[str, set[str]] = {}
    for user, used in graph.items():
        for one in used:
            users.setdefault(one, set()).add(user)
    path = Path(file)
    mirror = Path("tests", *path.parent.parts[1:])
    tests = [test for test in graph if _is_test(test)]

    def is_mirrored(test: str) -> bool:
        name = Path(test).stem.removeprefix("test_")
        return Path(test).parent == mirror and name.startswith(path.stem)

    near = _distances(users, file, DEVICES) if file not in DEVICES else {}

    def order(test: str) -> tuple[bool, int, str]:
        return Path(test).parent != mirror, near.get(test, 0), test

    mirrored = sorted(filter(is_mirrored, tests), key=order)
    block_users = [
        test
        for test in tests
        if test in near
        and not is_mirrored(test)
        and not test.startswith((*WHOLE_DEVICE, *NO_BLOCKS))
    ]
    folders: tuple[str, ...] = (str(mirror),) if mirror.name == "hostlink" else WHOLE_DEVICE
    if not any(file in closure(graph, device) for device in DEVICES):
        folders = ()
    whole = [
        (test in slow, folders.index(str(Path(test).parent)), test)
        for test in tests
        if str(Path(test).parent) in folders and not is_mirrored(test) and test not in block_users
    ]
    return Nearest(
        tuple(mirrored),
        tuple(sorted(block_users, key=order)),
        tuple(test for *_, test in sorted(whole)),
    )


def closure(graph: Mapping[str, set[str]], file: str) -> set[str]:
    """A file and all that it imports, directly or not."""
    found, queue = {file}, [file]
    while queue:
        for used in graph.get(queue.pop(), ()):
            if used not in found:
                found.add(used)
                queue.append(used)
    return found
