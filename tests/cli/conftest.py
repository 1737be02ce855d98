"""What tests of several commands have: their processes, and a card that publishes in a folder."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stagecoach.host_driver.context import Context
from stagecoach.host_driver.snapshots.folder import FOLDER_VARIABLE
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.network.timeline import CycleTime
from tests.cli.processes import processes

__all__ = ["processes"]

Work = Callable[[SimulatedNic, SimulatedNic], None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs of this test publish, and where `main` looks."""
    made = tmp_path / "top"
    made.mkdir(mode=0o700)
    monkeypatch.setenv(FOLDER_VARIABLE, str(made))
    return made


@pytest.fixture
def publishing(folder: Path, tmp_path: Path) -> Iterator[Callable[[Work], Path]]:
    """Given what a card at 192.0.2.1 does with its peer at 192.0.2.2, the file that tells of it.

    Both stay open. The peer is the gateway of the card.
    """
    with contextlib.ExitStack() as opened:

        def publish(work: Work) -> Path:
            time = CycleTime()
            wire = f"sim://?wire=pair:{tmp_path.name}&ip=192.0.2"
            peer = opened.enter_context(SimulatedNic(f"{wire}.2/24&tcp=reference", time=time))
            nic = SimulatedNic(f"{wire}.1/24&tcp=reference&gw=192.0.2.2", time=time)
            context = opened.enter_context(Context(nic))
            work(nic, peer)
            for observer in context._observers:
                observer._publish(is_open=True)  # type: ignore[attr-defined]
            (path,) = folder.glob(f"{os.getpid()}-*.json")
            return path

        yield publish
