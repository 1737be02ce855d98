"""System packages: a command installs what it needs and nothing else, and says so before."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "install_system_packages.sh"
ALL = ("g++", "make", "perl", "iverilog", "tshark", "ip")


@pytest.fixture
def system(tmp_path):
    """Runs the script where these programs are, as root, with an apt-get that says what it gets."""

    def run(purpose, programs, headers=True):
        folder = tmp_path / purpose
        folder.mkdir()
        stubs = dict.fromkeys(programs, "exit 0")
        stubs |= {"id": "echo 0", "apt-get": 'echo "apt-get $*"'}
        if not headers and "g++" in stubs:
            stubs["g++"] = "exit 1"
        for name, body in stubs.items():
            (folder / name).write_text(f"#!/bin/sh\n{body}\n")
            (folder / name).chmod(0o755)
        (folder / "env").symlink_to(str(shutil.which("env")))
        return subprocess.run(
            ["/bin/sh", str(SCRIPT), sys.executable, purpose],
            env={**os.environ, "PATH": str(folder)},
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize(
    ("purpose", "programs", "headers", "packages"),
    [
        ("base", ("g++", "make", "perl"), False, ""),
        ("base", ("make",), True, "g++ perl"),
        ("waves", ("g++", "make", "perl"), False, "zlib1g-dev liblz4-dev"),
        ("waves", ("g++", "make", "perl"), True, ""),
        ("test", ("g++", "make", "perl"), True, "iverilog tshark iproute2"),
        ("test", ALL, False, "zlib1g-dev liblz4-dev"),
        ("test", ALL, True, ""),
        ("packetdrill", ("g++", "make", "perl"), False, "bison flex gcc"),
        ("packetdrill", ("g++", "make", "perl", "bison", "flex", "cc"), False, ""),
        ("interop", ("g++", "make", "perl"), False, "qemu-system-x86 gcc-12 binutils xz-utils"),
    ],
)
def test_what_is_missing_and_needed_is_installed(system, purpose, programs, headers, packages):
    ran = system(purpose, programs, headers)
    assert (ran.returncode, ran.stderr) == (0, "")
    if not packages:
        assert ran.stdout == ""
        return
    said, installing, update, install = ran.stdout.splitlines()
    assert said == f"missing system packages: {packages}"
    assert installing == f"installing with apt-get: {packages}"
    assert update == "apt-get update -q"
    assert install.endswith(f"--no-install-recommends {packages}")


def test_an_unknown_purpose_is_named(system):
    ran = system("all", ALL)
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1 and "allowed: base, waves, test" in ran.stderr
