"""A file descriptor for select, selectors and asyncio that says that something is there."""

import os


class Readable:
    """A pipe that is readable while it is `set`. Calls are made one at a time.

    Raises `OSError` if the process has no descriptors left.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._set = False

    def set(self, there: bool = True) -> None:
        """Makes it readable, or takes that back."""
        if there == self._set:
            return
        self._set = there
        if there:
            os.write(self._write, b"!")
        else:
            os.read(self._read, 1)

    def fileno(self) -> int:
        """The descriptor. Nobody but this object reads from it."""
        return self._read

    def close(self) -> None:
        """Frees the descriptor."""
        os.close(self._write)
        os.close(self._read)
