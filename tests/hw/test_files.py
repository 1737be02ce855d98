"""Files are locked against others, and replaced as a whole."""

import subprocess
import sys
import threading
import time

import pytest

from stagecoach.hw.files import BadResults, locked, read_results, write_results, write_whole

TRY = """
import fcntl, sys
try:
    fcntl.flock(open(sys.argv[1], "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(3)
"""


def test_a_lock_keeps_out_other_processes_and_threads(tmp_path):
    path = tmp_path / "new" / "netlist.json"
    order = []

    def other():
        with locked(path):
            order.append("other")

    thread = threading.Thread(target=other)
    command = [sys.executable, "-c", TRY, f"{path}.lock"]
    with locked(path):
        assert subprocess.run(command, check=False).returncode == 3
        thread.start()
        thread.join(0.1)
        order.append("first")
        with locked(path.with_name("another.json")):
            pass
    thread.join()
    assert order == ["first", "other"]
    assert subprocess.run(command, check=False).returncode == 0


def test_a_file_whose_writing_fails_is_as_it_was(tmp_path):
    path = tmp_path / "results.json"
    write_results(path, {"a": 1})
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "first\ud800")
    with pytest.raises(TypeError):
        write_results(path, {"a": object()})
    assert read_results(path) == {"a": 1}
    assert read_results(tmp_path / "nothing.json") == {}


@pytest.mark.parametrize("text", ['{"a": 1', "", "[]", "\udcff"])
def test_results_that_cannot_be_read_are_named(tmp_path, text):
    path = tmp_path / "results.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadResults, match=r"results\.json .*mend or remove it"):
        read_results(path)


def test_a_lock_that_goes_away_keeps_others_out_all_the_same(tmp_path):
    path = tmp_path / "entry"
    command = [sys.executable, "-c", TRY, f"{path}.lock"]
    waits, holds, done = threading.Event(), threading.Event(), threading.Event()

    def other():
        waits.set()
        with locked(path):  # waits for a file that has lost its name when it gets it
            holds.set()
            done.wait()

    thread = threading.Thread(target=other, daemon=True)
    with locked(path, remove=True) as mine:
        assert mine
        thread.start()
        waits.wait()
        time.sleep(0.1)
        assert not holds.is_set()
    holds.wait()
    assert subprocess.run(command, check=False).returncode == 3
    with locked(path, wait=False) as mine:
        assert not mine
    done.set()
    thread.join()
    with locked(path, wait=False, remove=True) as mine:
        assert mine
    assert list(tmp_path.iterdir()) == []
