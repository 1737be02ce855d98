"""A program in the pattern of rdma-core's own runs on two simulated devices."""

import ast
import socket
import subprocess
import sys
from pathlib import Path

PROGRAM = "tests.integration.pyverbs_program"
ROOT = Path(__file__).parents[2]


def test_a_program_for_pyverbs_runs_unchanged_but_for_its_imports():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM, port], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_uses_nothing_that_pyverbs_does_not_have():
    tree = ast.parse((ROOT / f"{PROGRAM.replace('.', '/')}.py").read_text())
    assert "verbs" not in {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}
