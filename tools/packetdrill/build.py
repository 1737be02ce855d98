"""Builds packetdrill and the shared object in build/packetdrill, from where packetdrill is."""

import hashlib
import os
import shutil
import subprocess
import tarfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "packetdrill"
_SHARED_OBJECT = Path(__file__).with_name("shared_object.c")
_LOG_LINES = 15


class BuildError(Exception):
    """packetdrill cannot be had; the message is for the user."""


def source(place: str, sha256: str | None) -> Path:
    """The folder that ``place`` names: itself, or an archive, whose SHA-256 has to be ``sha256``.

    Raises :class:`BuildError`.
    """
    remote = place.startswith("https://")
    if not remote and Path(place).is_dir():
        return Path(place).resolve()
    if not remote and not Path(place).exists():
        raise BuildError(f"{place} is not there")
    if not sha256:
        raise BuildError(f"{place}: an archive needs PACKETDRILL_SHA256, its pin")
    try:
        if remote:
            with urllib.request.urlopen(place, timeout=60) as answer:
                octets = answer.read()
        else:
            octets = Path(place).read_bytes()
    except OSError as error:
        raise BuildError(f"{place}: {error}") from error
    found = hashlib.sha256(octets).hexdigest()
    if found != sha256.lower():
        raise BuildError(f"{place}: SHA-256 is {found} (expected {sha256})")
    folder = BUILD / f"archive-{found[:16]}"
    if not folder.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        archive = BUILD / "archive.tar"
        archive.write_bytes(octets)
        unpacked = BUILD / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, filter="data")
        except tarfile.TarError as error:
            raise BuildError(f"{place}: {error}") from error
        unpacked.rename(folder)
    return folder


def build(folder: Path) -> tuple[Path, Path]:
    """packetdrill and the shared object; nothing is written to ``folder``.

    Raises :class:`BuildError`.
    """
    headers = sorted(folder.rglob("packetdrill.h"))
    if not headers:
        raise BuildError(f"{folder}: no packetdrill.h is in it")
    sources = [x for x in sorted(headers[0].parent.iterdir()) if x.is_file()]
    digest = hashlib.sha256(_SHARED_OBJECT.read_bytes())
    for file in sources:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    made = BUILD / digest.hexdigest()[:16]
    program, shared_object = made / "packetdrill", made / "shared_object.so"
    if not shared_object.exists():
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        for file in sources:
            shutil.copyfile(file, made / file.name)
        _run("make", "-f", "Makefile.Linux", "packetdrill", folder=made)
        options = ("-std=gnu11", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", f"-I{made}")
        partial = made / "shared_object.part"
        _run("cc", *options, "-o", str(partial), str(_SHARED_OBJECT), "-lpthread", folder=made)
        partial.rename(shared_object)
    return program, shared_object


def _run(*command: str, folder: Path) -> None:
    try:
        ran = subprocess.run(
            command,
            cwd=folder,
            # That of a `make` above says nothing to this one.
            env={name: value for name, value in os.environ.items() if name != "MAKEFLAGS"},
            capture_output=True,
            text=True,
        )
    except FileNotFoundError as error:
        raise BuildError(f"{command[0]} is not installed") from error
    if ran.returncode:
        log = "\n".join((ran.stdout + ran.stderr).splitlines()[-_LOG_LINES:])
        raise BuildError(f"{command[0]} failed in {folder}:\n{log}")
